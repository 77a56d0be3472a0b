"""The effect of each tip of a model surgeon: pairs of cells of +sweep=surgery, one net that follows the tip and one that does not."""

from ane_sweep.bridge.record import Record
from ane_sweep.placement.reasons import STAYS
from ane_sweep.report.blocks import Grid, Section, figure_text
from ane_sweep.results.headline import estimate, is_check, measured_ms

_HERE, _NONE = "ms on this host (measured)", "- -> -"
HEADS = ["tip", "chip", "ANE ops % (predicted)", "ms (estimated)", _HERE, "PSNR dB (measured)"]
HEADS += ["why ops stay off the ANE without it"]
_FAMILY = "surgery"


def section(records: list[Record]) -> Section | None:
    """Return the section, or None if no tip has both nets."""
    found = rows(records)
    shown = [n for n, head in enumerate(HEADS) if head != _HERE or {row[n] for row in found} != {_NONE}]
    grid = Grid([HEADS[n] for n in shown], [[row[n] for n in shown] for row in found], [False] * len(shown))
    return Section("What each tip changed", [grid]) if found else None


def rows(records: list[Record]) -> list[list[str]]:
    """Return a row for each tip and chip with each figure without and with the tip."""
    found = []
    for before, after in _pairs(records):
        for chip in dict.fromkeys(entry.chip for entry in after.placed("predicted") if entry.chip):
            sides = zip(_figures(before, chip), _figures(after, chip))
            tip = str(after.cell["model"]).removeprefix(f"{_FAMILY}-")
            found.append([tip, chip, *(" -> ".join(both) for both in sides), _why(before, chip)])
    return found


def lines(records: list[Record]) -> list[str]:
    """Return the rows for a terminal, a line for each tip and chip."""
    made = rows(records)
    head = ["tip by tip, without it -> with it (ops predicted, ms estimated, PSNR measured):"] if made else []
    return head + [
        f"  {tip} ({chip}): ANE ops {share} %; {estimate} ms; "
        + (f"{here} ms on this host; " if here != _NONE else "")
        + f"{psnr} dB{f'; {why}' if why else ''}"
        for tip, chip, share, estimate, here, psnr, why in made
    ]


def _pairs(records: list[Record]) -> list[tuple[Record, Record]]:
    """Return (not followed, followed) of each tip that has both cells."""
    sides: dict[str, dict[bool, Record]] = {}
    for record in records:
        if record.cell.get("family") == _FAMILY:
            followed = bool(record.cell["model_options"]["arch"]["followed"])
            sides.setdefault(str(record.cell["model"]), {})[followed] = record
    return [(side[False], side[True]) for side in sides.values() if len(side) == 2]


def _figures(record: Record, chip: str) -> list[str]:
    """Return texts of the share of ops on the ANE, the estimate, the latency and the PSNR."""
    shares = (entry.ops.share("ane") for entry in record.placed("predicted") if entry.chip == chip and entry.ops.total)
    share, estimated = next(shares, None), estimate(record, chip)
    figures = (estimated and estimated.ms, None if is_check(record) else measured_ms(record), record.value("psnr_db"))
    return ["-" if share is None else f"{100 * share:.0f}", *(figure_text(figure, 3) for figure in figures)]


def _why(record: Record, chip: str) -> str:
    """Return the reason that most ops have; reasons that follow from others come last."""
    reasons = [reason for entry in record.placed("predicted") if entry.chip == chip for reason in entry.reasons]
    found = sorted(reasons, key=lambda reason: (reason.reason.startswith(STAYS), -reason.ops))
    return found[0].reason if found else ""
