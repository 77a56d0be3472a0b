"""Conversion whose cost does not grow with depth: it converts a few blocks, and builds the whole program from them.

growing    converts a module to its grown package           calls     finds repeating lists by the calls of a run
repeats    lists of blocks, and a module with fewer of them     program   an ML Program as sequences of items
sequence   extrapolates a sequence of items                    frontend  attaches recipes while coremltools converts
recipes    constants that remember their source weights         proof     shows that blocks decide only their constants
weights    streams the module's weights into weight.bin         reading   refuses Python code that reads numbers

A grown package equals, byte for byte, the package that a conversion of all blocks writes. If this cannot be proven,
Unlike is raised before `package` is written, and the caller converts all blocks. Nothing heavy is imported here.
"""

from dataclasses import dataclass
from pathlib import Path

from ane_sweep.worker.grow.sequence import Unlike
from ane_sweep.worker.pymil import PymilProgram

__all__ = ["ALWAYS", "VARIABLE", "Converted", "Unlike", "refuse_numbers"]


VARIABLE = "ANE_SWEEP_GROW"  # 0: all blocks are converted, whatever they are; the same bytes, so it is in no key
ALWAYS = "always"  # also where it does not pay, from as few blocks as will do: for tests at small depth


@dataclass(frozen=True)
class Converted:
    """The result of a conversion: the package, its program, and the counts of its ops and numbers."""

    package: Path
    program: PymilProgram
    facts: dict[str, int]


def refuse_numbers(patterns: list[str]) -> None:
    """Raise Unlike if a pattern of op names may match single blocks: it has a digit, or a wildcard that can match one."""
    if found := [one for one in patterns if any(c.isdigit() or c in "?[" for c in one)]:
        raise Unlike(f"fp32_ops={found[0]} may name an op of one block alone")
