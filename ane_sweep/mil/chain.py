"""A chain of programs (chunks) seen as one program, and part of such a chain written as a chain."""

from pathlib import Path

from ane_sweep.errors import ChunkError, PackageError
from ane_sweep.mil import package
from ane_sweep.mil.proto import Model_pb2

Description = Model_pb2.ModelDescription | Model_pb2.FunctionDescription
OUTPUTS_KEY = "ane_sweep.outputs"  # in a chunk's metadata: names of the whole program's outputs, in order


def outputs_key(function: str = "") -> str:
    """Return the metadata key that lists the outputs of a function; `function` is "" if there is only one."""
    return f"{OUTPUTS_KEY}.{function}" if function else OUTPUTS_KEY


def function_description(spec: Model_pb2.Model, function: str = "") -> Description:
    """Return the message that lists a function's features: its own description, or the model's if it has none."""
    name = function or spec.description.defaultFunctionName
    return next((listed for listed in spec.description.functions if listed.name == name), spec.description)


def find_inputs(specs: list[Model_pb2.Model], function: str = "") -> dict[str, Model_pb2.FeatureDescription]:
    """Return the feature descriptions of the inputs that the chain needs from outside, by name, in order.

    `specs` are the chain's Model messages in order; `function` is "" for the default one.
    """
    made: set[str] = set()
    needed: dict[str, Model_pb2.FeatureDescription] = {}
    for description in (function_description(spec, function) for spec in specs):
        for feature in description.input:
            if feature.name not in made:
                needed.setdefault(feature.name, feature)
        made |= {feature.name for feature in description.output}
    return needed


def find_outputs(
    specs: list[Model_pb2.Model], where: Path, function: str = ""
) -> dict[str, Model_pb2.FeatureDescription]:
    """Return the feature descriptions of the chain's outputs, by name, in order, without the values that only pass
    between chunks.

    Chunks that this package cut list the outputs in their metadata; for other chains, outputs are the values that no
    later program reads. Raises PackageError, which names `where`, if the chunks do not belong to one program.
    """
    descriptions = [function_description(spec, function) for spec in specs]
    made = {feature.name: feature for description in descriptions for feature in description.output}
    several = len(specs[0].description.functions) > 1
    key = outputs_key((function or specs[0].description.defaultFunctionName) if several else "")
    noted = [spec.description.metadata.userDefined.get(key, "") for spec in specs]
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


def take_pieces(paths: list[Path], first: int, last: int, out: Path) -> list[Path]:
    """Write pieces `first` to `last` of the chain `paths`, counted from 1, into `out` and return the new paths.

    Several pieces become a chain `chunk_01.mlpackage` and on, a single one becomes `model.mlpackage`. Weight files are
    linked. Raises errors.ChunkError if there are fewer pieces.
    """
    if last > len(paths):
        raise ChunkError(
            f"pieces={first}-{last}: the program came to {len(paths)} chunks; give pieces from 1 to {len(paths)}"
        )
    specs = [package.read(path).spec for path in paths]
    wanted = set(find_outputs(specs, paths[0].parent))
    wanted |= {feature.name for spec in specs[last:] for feature in spec.description.input}  # what later pieces read
    own = dict.fromkeys(feature.name for spec in specs[first - 1 : last] for feature in spec.description.output)
    names = ",".join(name for name in own if name in wanted)
    written = []
    for index in range(first - 1, last):
        target = out / (package.chunk_name(index + 1 - first) if last > first else "model.mlpackage")
        weights = package.read(paths[index]).model_path.parent / "weights" / "weight.bin"
        place = package.create(target)
        if weights.is_file():
            package.link_or_copy(weights, place)
        spec = specs[index]
        spec.description.metadata.userDefined[OUTPUTS_KEY] = names
        package.write(target, spec)
        written.append(target)
    return written
