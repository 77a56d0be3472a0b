"""the latency estimates beside published tables: order, error and band, each table by terms that it had no part in"""

from ane_sweep.placement import latency
from tests.bench import Row
from tests.proof.placement import choices, tables, terms
from tests.proof.placement.tables import Pair, Table

UNITS = {"ane": "Neural Engine", "gpu": "GPU", "cpu": "CPU"}
NETS = {"ResNet50": "resnet50", "MobileNetV2": "mobilenet version=2", "MobileNetV3-small": "mobilenet version=3"}
_GUIDE = "coremltools guide"


def run() -> list[Row]:
    """A row for all tables of a unit, for each of them that has an order, for the pairs, the choice of unit and the guide's nets."""
    said = tables.said()
    rows = [_whole(table) for table in tables.by_unit(said)]
    rows += [_table(table) for table in tables.tables(said) if table.orders["ours"] is not None]
    rows += [_pairs(tables.pairs(said)), _choice(choices.score())]
    return rows + [
        _net(name, row) for name, net in NETS.items() for row in terms.rows() if (row.table, row.net) == (_GUIDE, net)
    ]


def _whole(table: Table) -> Row:
    told = table.rows - table.not_estimated
    error = "" if table.error_before is None else f"{_rho(table, 'before')}, error {table.error_before:.0%}; "
    return Row(
        f"{UNITS[table.unit]}: {told} published latencies, {table.not_estimated} not estimated",
        f"rank correlation {_rho(table, 'ours')}, error {table.error:.0%}, {table.inside} inside the band",
        f"{error}FLOP {_rho(table, 'flop')}, bytes {_rho(table, 'bytes')}",
        f"{table.inside / told:.2f}", "nine in ten inside",
    )  # fmt: skip


def _table(table: Table) -> Row:
    before = "" if table.unit != "ane" else f"{_rho(table, 'before')}, error {table.error_before:.0%}; "
    return Row(
        f"{table.table}, {UNITS[table.unit]}: {table.rows - table.not_estimated} rows",
        f"rank correlation {_rho(table, 'ours')}, error {table.error:.0%}, {table.inside} inside",
        f"{before}FLOP {_rho(table, 'flop')}, bytes {_rho(table, 'bytes')}",
    )


def _rho(table: Table, who: str) -> str:
    found = table.orders[who]
    return "-" if found is None else f"{found:.2f}"


def _pairs(pairs: list[Pair]) -> Row:
    right, wrong = (sum(pair.said == word for pair in pairs) for word in ("right", "wrong"))
    return Row(
        f"original against split_einsum, {len(pairs)} published pairs",
        f"{right} ordered right, {len(pairs) - right - wrong} not estimated", "", str(wrong), "none wrong",
    )  # fmt: skip


def _choice(found: choices.Score) -> Row:
    return Row(
        f"Neural Engine or GPU, {found.rows} published programs, each left out in turn",
        f"{found.left_out} right", f"{found.always_ane}, always the Neural Engine; {found.majority}, the more frequent",
    )  # fmt: skip


def _net(name: str, row: terms.Row) -> Row:
    """With all tables' terms, as an estimate is given."""
    found = latency.estimate(row.works, row.chip)
    inside = "inside" if found.low_ms <= row.ms <= found.high_ms else "outside"
    ours = f"{found.ms:.2f} ms ({found.low_ms:.2f} to {found.high_ms:.2f})"
    return Row(
        f"{name} {row.chip.chip}", ours, f"{row.ms:.2f} ms, published", f"{found.ms / row.ms:.2f}", f"{inside} its band"
    )
