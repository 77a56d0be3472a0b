"""gpt2-xl, the ladder's top step and a UNet (random weights): what converting takes by phase (also: conversions --phases)

`ANE_SWEEP_MODELS=gpt2` looks at other options, `ANE_SWEEP_GROW=0` at converting all blocks. Wall time is the main thread's; CPU
time that of our threads, without torch's own helpers. Time within another phase is that phase's alone.
"""

import os
import sys
import tempfile
from typing import Any

from tests.bench import Row, _kept, conversions, said

MODELS = "gpt2-xl,ladder-xl,sd-1.4-unet"
_LEAST = 0.02  # of the CPU time: lesser passes are told together


def run() -> list[Row]:
    """Some ten rows a model and variant."""
    return [row for name, variant in conversions.chosen(MODELS) for row in _rows(name, variant)]


def keep(rows: list[Row]) -> Any:
    return _kept.replace("phases", rows)


def _rows(name: str, variant: str) -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "tests.bench._phased", name, variant, folder]
        took = said(command, TMPDIR=folder)
    way = ", all blocks" if os.environ.get("ANE_SWEEP_GROW") == "0" else ""
    rows = [Row(f"{name} {variant}{way}", _told(took["wall_s"], took["cpu_s"], took["peak_bytes"]))]
    for phase, figures in _gathered(took["phases"], _LEAST * took["cpu_s"]).items():
        rows.append(
            Row(f"{name} {variant}{way}: {phase}", _told(*figures), ratio=f"{figures[1] / took['cpu_s']:.2f} of CPU")
        )
    return rows


def _gathered(phases: dict[str, list[float]], least: float) -> dict[str, list[float]]:
    """In their order, passes that take little as one."""
    found: dict[str, list[float]] = {}
    for phase, (wall, cpu, peak) in phases.items():
        small = phase.startswith("pass ") and cpu < least
        known = found.setdefault("other passes" if small else phase, [0.0, 0.0, 0.0])
        found["other passes" if small else phase] = [known[0] + wall, known[1] + cpu, max(known[2], peak)]
    return found


def _told(wall: float, cpu: float, peak: float) -> str:
    return f"{wall:.1f} s, {cpu:.1f} s of CPU, peak {peak / 2**30:.2f} GiB"
