"""`ane-sweep devices`: the chips that placement is predicted for"""

from ane_sweep import tables
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.placement import chips
from ane_sweep.terminal import OK, tell
from ane_sweep.words import Parser

_COLUMNS = (
    "chip",
    "family",
    "ane_cores",
    "tops",
    "fp16_tflops",
    "weight_gbs",
    "dispatch_ms",
    "axis_limit",
    "confidence",
    "basis",
)
_HEADS = (
    "chip",
    "family",
    "cores",
    "TOPS",
    "fp16 TF/s",
    "weights GB/s",
    "dispatch ms",
    "axis",
    "confidence",
    "basis; sources",
)


def devices(args: list[str]) -> int:
    """Print the chip table; --json for all of it. Raises ConfigError for a wrong word."""
    parser = Parser(
        "devices",
        "[--json]",
        "The chips that placement is predicted for, with the sources of each figure; and the phones, tablets and Macs whose "
        "names stand for a chip (iphone15_pro is a17_pro).",
        "ane-sweep devices",
    )
    parser.json("chips, sources, devices", "tables")
    given = parser.read(args)
    known = chips.table(find_measurements).values()

    if given.json:
        rows = [chip.to_dict() for chip in known]
        tell(chips=rows, sources=chips.sources(), devices=chips.devices())
        return OK
    table: list[tuple[str, ...]] = []
    for chip in known:
        cells = ["?" if getattr(chip, name) is None else f"{getattr(chip, name)}" for name in _COLUMNS]
        table.append((*cells[:-1], f"{chip.basis}; {', '.join(chip.sources)}"))
    names = [(chip, ", ".join(devices)) for chip, devices in chips.devices().items()]
    told = (tables.aligned(table, heads=_HEADS), tables.aligned(chips.sources().items()))
    print(*told, tables.aligned(names, heads=("chip", "names of devices, which stand for it")), sep="\n\n")
    return OK
