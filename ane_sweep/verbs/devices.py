"""`ane-sweep devices`: the chips that placement is predicted for"""

from ane_sweep import tables
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.placement import chips
from ane_sweep.terminal import OK, tell
from ane_sweep.words import Parser

_HEADS = {
    "chip": "chip", "family": "family", "ane_cores": "cores", "tops": "TOPS", "fp16_tflops": "fp16 TF/s",
    "weight_gbs": "weights GB/s", "dispatch_ms": "dispatch ms", "axis_limit": "axis", "confidence": "confidence",
}  # fmt: skip


def devices(args: list[str]) -> int:
    """Print the chip table, or all its fields with --json. Raises ConfigError for a wrong word."""
    parser = Parser(
        "devices [--json]",
        "The chips that placement is predicted for, with the sources of each figure; and the phones, tablets and Macs whose "
        "names stand for a chip (iphone15_pro is a17_pro).",
        "ane-sweep devices",
    )
    parser.json("chips, sources, devices", "tables")
    given = parser.read(args)
    known = chips.table(find_measurements).values()
    if given.json:
        tell(chips=[chip.to_dict() for chip in known], sources=chips.sources(), devices=chips.devices())
        return OK
    table = [
        (
            *("?" if getattr(chip, name) is None else str(getattr(chip, name)) for name in _HEADS),
            f"{chip.basis}; {', '.join(chip.sources)}",
        )
        for chip in known
    ]
    names = [(chip, ", ".join(devices)) for chip, devices in chips.devices().items()]
    shown = (tables.aligned(table, heads=(*_HEADS.values(), "basis; sources")), tables.aligned(chips.sources().items()))
    print(*shown, tables.aligned(names, heads=("chip", "names of devices, which stand for it")), sep="\n\n")
    return OK
