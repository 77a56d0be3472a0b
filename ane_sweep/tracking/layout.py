"""The page on which MLflow shows a sweep: prepared charts, in the form that its UI calls a shared view.

MLflow keeps a shared view as a tag of the experiment, mlflow.sharedViewState.KEY, and opens it with
viewStateShareKey=KEY (v3.17; it takes plain JSON as well as its own compressed text). If it cannot read the view, it
says so and shows its usual page. Plain Python without mlflow.
"""

import json
from collections import Counter

from ane_sweep.bridge.metrics import METRICS
from ane_sweep.bridge.record import Record
from ane_sweep.results.headline import shipped_chip
from ane_sweep.tracking import figures

TAG = "mlflow.sharedViewState."
TAG_LIMIT = 5000  # of an experiment's tag
MEASURED, SIZE, PSNR = figures.MEASURED_KEY, f"measured.{METRICS['package_bytes'].tracked_name}", "measured.psnr_db"
PLACED = ("planned", "predicted")  # what Core ML's plan says is nearer than what we predict
RUNS = 100  # that MLflow shows in one chart at most
AXES, FIGURES = "ane-sweep-axes", "ane-sweep-figures"  # sections: the first is a column wide, its labels need the room


def shared_view(records: list[Record], axes: list[str]) -> str | None:
    """Return the view as JSON: parallel coordinates over all axes, scatter plots of the figures, then bars of each.

    Charts whose metrics no cell has are left out, and also the last ones if they do not all fit into a tag. None if not
    even the first fits. The last metric of the parallel coordinates gives the colours.
    """
    cards = _cards(_metrics(records), order_of(records)[0], axes)
    for number, card in enumerate(cards):
        card["uuid"] = f"ane-sweep-{number}"
    while cards:
        text = json.dumps(_state(records, cards), separators=(",", ":"))
        if len(text) <= TAG_LIMIT:
            return text
        cards.pop()
    return None


def order_of(records: list[Record]) -> tuple[str, bool]:
    """Return the metric by which most of the cells are ordered, and True if less of it is better: their headline latency,
    else the predicted share of the cost on the Neural Engine.
    """
    if found := Counter(name for record in records if (name := figures.headline_key(record))):
        return found.most_common(1)[0][0], True
    chip = next((chip for record in records if (chip := shipped_chip(record))), "")
    return f"predicted.{chip}.cost_share_ane", False


def _metrics(records: list[Record]) -> dict[str, list[str]]:
    """Return the names of the charts' metrics: measured ones, and per chip the share of ops on the ANE and the estimate."""
    known = dict.fromkeys(name for record in records for name in figures.named_metrics(record))
    shares = [f"{kind}.{{}}.ops_share_ane" for kind in PLACED]
    chips = dict.fromkeys(metric.chip for record in records for metric in record.metrics if metric.chip)
    placed = [next((name for share in shares if (name := share.format(chip)) in known), None) for chip in chips]
    return {
        "measured": [name for name in (MEASURED, PSNR, SIZE) if name in known],
        "placed": [name for name in placed if name],
        "estimated": [name for chip in chips if (name := f"estimated.{chip}.latency_ms") in known],
    }


def _cards(names: dict[str, list[str]], speed: str, axes: list[str]) -> list[dict[str, object]]:
    """Return the charts. Charts of several figures show the first chip only; each chip has its own bars."""
    measured, estimated, placed = names["measured"], names["estimated"], names["placed"]
    estimate, share = (next(iter(found), "") for found in (estimated, placed))
    known = [name for name in (*measured, estimate, share) if name]
    speeds = sorted((name for name in (MEASURED, estimate) if name in known), key=lambda name: name != speed)
    along = [name for name in (PSNR, SIZE, share, *reversed(speeds)) if name in known]
    cards = []
    if axes and along:
        cards.append(_card("PARALLEL", AXES, selectedParams=axes, selectedMetrics=along, showAllRuns=True))
    for pair in (*((one, other) for other in (PSNR, share) for one in speeds), (SIZE, PSNR)):
        if set(pair) <= set(along):
            x, y = ({"key": name, "type": "METRIC"} for name in pair)
            cards.append(_card("SCATTER", FIGURES, xaxis=x, yaxis=y))
    bars = dict.fromkeys((*speeds[:1], *measured, *estimated, *placed))
    return cards + [_card("BAR", FIGURES, metricKey=name) for name in bars]


def _state(records: list[Record], cards: list[dict[str, object]]) -> dict[str, object]:
    order, ascending = order_of(records)
    return {
        "searchFilter": cells_of(records[0].sweep),
        "orderByKey": f"metrics.`{order}`",
        "orderByAsc": ascending,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "compareRunCharts": cards,
        "compareRunSections": [_section(AXES, "Axes", 1, 320), _section(FIGURES, "Figures", 2, 400)],
        "runsHiddenMode": "SHOWALL",
        "runListHidden": True,
    }


def cells_of(sweep: str) -> str:
    """Return MLflow's filter for the cells of one sweep, without their parent."""
    return f"tags.`ane_sweep.sweep` = '{sweep}' AND tags.`ane_sweep.cell_key` != ''"


def _section(section: str, name: str, columns: int, height: int) -> dict[str, object]:
    shown = {"display": True, "isReordered": False, "deleted": False, "isGenerated": False}
    return {"uuid": section, "name": name, "columns": columns, "cardHeight": height, **shown}


def _card(kind: str, section: str, **more: object) -> dict[str, object]:
    shown = {"runsCountToCompare": RUNS, "metricSectionId": section, "deleted": False, "isGenerated": False}
    return {"type": kind, **shown, **more}
