"""A chain of programs as one: what goes in from outside and what comes out of it, for every runtime that drives
chunks.
"""

from pathlib import Path
from typing import Any

from ane_sweep.errors import PackageError

OUTPUTS_KEY = "ane_sweep.outputs"  # in a chunk's metadata: names of the whole program's outputs, in order


def inputs(specs: list[Any]) -> dict[str, Any]:
    """Feature descriptions of what the chain needs from outside, by name, in order. `specs` are Model messages in
    order.
    """
    made: set[str] = set()
    needed: dict[str, Any] = {}
    for spec in specs:
        for feature in spec.description.input:
            if feature.name not in made:
                needed.setdefault(feature.name, feature)
        made |= {feature.name for feature in spec.description.output}
    return needed


def outputs(specs: list[Any], where: Path) -> dict[str, Any]:
    """Feature descriptions of what the chain is for, by name, in order: without the values that chunks hand over.

    Chunks that we made say so in their metadata; otherwise it is what no later program reads.
    """
    made = {feature.name: feature for spec in specs for feature in spec.description.output}
    noted = [spec.description.metadata.userDefined.get(OUTPUTS_KEY) for spec in specs]
    if len(specs) > 1 and all(noted):
        names = noted[0].split(",")
        missing = [name for name in names if name not in made]
        if missing or len(set(noted)) > 1:
            raise PackageError(
                f"{where}: these chunks are not of one program (output {missing or noted}); chunk it again"
            )
        return {name: made[name] for name in names}
    read = {feature.name for spec in specs for feature in spec.description.input}
    last = {feature.name for feature in specs[-1].description.output}
    return {name: feature for name, feature in made.items() if name in last or name not in read}
