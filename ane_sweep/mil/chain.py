"""A chain of programs as one: what goes in from outside and what comes out of it, for every runtime that drives
chunks.
"""

from pathlib import Path
from typing import Any

from ane_sweep.errors import PackageError

OUTPUTS_KEY = "ane_sweep.outputs"  # in a chunk's metadata: names of the whole program's outputs, in order


def outputs_key(function: str = "") -> str:
    """The metadata key for a function of several; "" for the only one."""
    return f"{OUTPUTS_KEY}.{function}" if function else OUTPUTS_KEY


def function_description(spec: Any, function: str = "") -> Any:
    """What holds the features of a function: its own description where functions are listed, else the model's."""
    name = function or spec.description.defaultFunctionName
    return next((listed for listed in spec.description.functions if listed.name == name), spec.description)


def find_inputs(specs: list[Any], function: str = "") -> dict[str, Any]:
    """Feature descriptions of what the chain needs from outside, by name, in order. `specs` are Model messages in
    order; `function` is one of several, "" the default one.
    """
    made: set[str] = set()
    needed: dict[str, Any] = {}
    for description in (function_description(spec, function) for spec in specs):
        for feature in description.input:
            if feature.name not in made:
                needed.setdefault(feature.name, feature)
        made |= {feature.name for feature in description.output}
    return needed


def find_outputs(specs: list[Any], where: Path, function: str = "") -> dict[str, Any]:
    """Feature descriptions of what the chain is for, by name, in order: without the values that chunks hand over.

    Chunks that we made say so in their metadata; otherwise it is what no later program reads.
    """
    descriptions = [function_description(spec, function) for spec in specs]
    made = {feature.name: feature for description in descriptions for feature in description.output}
    several = len(specs[0].description.functions) > 1
    key = outputs_key((function or specs[0].description.defaultFunctionName) if several else "")
    noted = [spec.description.metadata.userDefined.get(key) for spec in specs]
    if len(specs) > 1 and all(noted):
        names = noted[0].split(",")
        missing = [name for name in names if name not in made]
        if missing or len(set(noted)) > 1:
            raise PackageError(
                f"{where}: these chunks are not of one program (output {missing or noted}); chunk it again"
            )
        return {name: made[name] for name in names}
    read = {feature.name for description in descriptions for feature in description.input}
    last = {feature.name for feature in descriptions[-1].output}
    return {name: feature for name, feature in made.items() if name in last or name not in read}
