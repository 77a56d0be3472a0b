"""README's first sweep: MiniLM with its trained weights, both variants, whole and in two chunks"""

import os
import tempfile
from pathlib import Path

from ane_sweep.bridge import record
from tests.bench import Row, ane_sweep

SWEEP = ["-m", "model=minilm", "variant=original,split_einsum", "chunks=1,2"]


def run() -> list[Row]:
    return [Row(what(one), figures(one)) for one in swept(SWEEP)]


def swept(args: list[str]) -> list[record.Record]:
    """The records of one sweep, on a cold cache unless $ANE_SWEEP_OUT names a folder, where its report then lies."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(os.environ.get("ANE_SWEEP_OUT") or folder)
        ane_sweep(args, out)
        return record.read_records(max(out.glob("runs/*")))


def what(one: record.Record) -> str:
    return " ".join([one.cell["model"], one.cell["variant"], f"chunks={one.cell['chunks']}"])


def figures(one: record.Record) -> str:
    """Measured on this host's CPU but for the last two: the predicted share of ops on an M4's Neural Engine, its estimate."""
    share = one.value("ops_ane", "predicted", "m4") / one.value("ops_total", "predicted", "m4")
    low, middle, high = (one.value(f"latency_{name}ms", "estimated", "m4") for name in ("low_", "", "high_"))
    said = [
        f"{one.value('latency_median_ms'):.1f} ± {one.value('latency_iqr_ms'):.1f} ms",
        f"{one.value('psnr_db'):.1f} dB",
        f"{one.value('package_bytes') / 1e6:.1f} MB",
        f"{share:.0%} of ops on the ANE".replace("%", " %"),
        f"M4: {middle:.2f} ms ({low:.1f} to {high:.1f})",
    ]
    return "; ".join(said)
