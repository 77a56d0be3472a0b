"""The effect of each tip of a model surgeon: pairs of +sweep=surgery, a net that does not follow the tip and one that does."""

from collections.abc import Iterable

from ane_sweep.bridge.record import Record
from ane_sweep.placement.advice import STAYS

HEADS = (
    "tip",
    "chip",
    "ANE ops % (predicted)",
    "ms (estimated)",
    "latency ms (measured)",
    "PSNR dB (measured)",
    "why ops stay off the ANE without it",
)
_FAMILY = "surgery"


def rows(records: list[Record]) -> list[list[str]]:
    """Return a row for each tip and chip, each figure without the tip and with it."""
    found = []
    for before, after in _pairs(records):
        for chip in dict.fromkeys(entry.chip for entry in after.placed("predicted") if entry.chip):
            figures = [
                _both(_share(one, chip) for one in (before, after)),
                _both(_estimate(one, chip) for one in (before, after)),
            ]
            figures += [
                _both(_text(one.value(name)) for one in (before, after)) for name in ("latency_median_ms", "psnr_db")
            ]
            found.append([after.cell["model"].removeprefix(f"{_FAMILY}-"), chip, *figures, _why(before, chip)])
    return found


def lines(records: list[Record]) -> list[str]:
    """Return the rows for a terminal, a line for each tip and chip."""
    made = rows(records)
    head = ["tip by tip, without it -> with it (predicted; estimated; measured here):"] if made else []
    return head + [
        f"  {tip} ({chip}): ANE ops {share} %; {estimate} ms; {measured} ms; {psnr} dB" + (f"; {why}" if why else "")
        for tip, chip, share, estimate, measured, psnr, why in made
    ]


def _pairs(records: list[Record]) -> list[tuple[Record, Record]]:
    """Return (not followed, followed) of each tip that has both."""
    sides: dict[str, dict[bool, Record]] = {}
    for record in records:
        if record.cell.get("family") == _FAMILY:
            sides.setdefault(str(record.cell["model"]), {})[bool(record.cell["model_options"]["arch"]["followed"])] = (
                record
            )
    return [(side[False], side[True]) for side in sides.values() if len(side) == 2]


def _both(values: Iterable[str]) -> str:
    return " -> ".join(values)


def _share(record: Record, chip: str) -> str:
    found = [entry for entry in record.placed("predicted") if entry.chip == chip and entry.ops.total]
    return f"{100 * found[0].ops.share('ane'):.0f}" if found else "-"


def _estimate(record: Record, chip: str) -> str:
    return _text(record.value("latency_ms", "estimated", chip))


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _why(record: Record, chip: str) -> str:
    """Return the reason that most ops have; reasons that only follow from another come last."""
    reasons = [reason for entry in record.placed("predicted") if entry.chip == chip for reason in entry.reasons]
    found = sorted(reasons, key=lambda reason: (reason.reason.startswith(STAYS), -reason.ops))
    return found[0].reason if found else ""
