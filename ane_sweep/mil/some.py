"""Some pieces of a chain of programs as a chain of their own: what goes into it, and what the pieces behind it would read."""

from pathlib import Path
from typing import Any

from ane_sweep.errors import ChunkError
from ane_sweep.mil import chain, package


def take_pieces(paths: list[Path], first: int, last: int, out: Path) -> list[Path]:
    """Write pieces `first` to `last` of the chain `paths`, counted from 1, into `out`: a chain `chunk_01.mlpackage` and on, or
    `model.mlpackage` where it is one. Weight files are linked. Raises errors.ChunkError where there are fewer pieces."""
    if last > len(paths):
        raise ChunkError(
            f"pieces={first}-{last}: the program came to {len(paths)} chunks; give pieces from 1 to {len(paths)}"
        )
    specs = [package.read(path).spec for path in paths]
    names = ",".join(_outputs(specs, first, last, paths[0].parent))
    made = []
    for index in range(first - 1, last):
        target = out / (package.chunk_name(index + 1 - first) if last > first else "model.mlpackage")
        weights = package.read(paths[index]).model_path.parent / "weights" / "weight.bin"
        place = package.create(target)
        if weights.is_file():
            package.link_or_copy(weights, place)
        spec = specs[index]
        spec.description.metadata.userDefined[chain.OUTPUTS_KEY] = names
        package.write(target, spec)
        made.append(target)
    return made


def _outputs(specs: list[Any], first: int, last: int, where: Path) -> list[str]:
    """What of the pieces' outputs the whole program gives, or a later piece reads."""
    wanted = set(chain.find_outputs(specs, where))
    wanted |= {feature.name for spec in specs[last:] for feature in spec.description.input}
    own = [feature.name for spec in specs[first - 1 : last] for feature in spec.description.output]
    return [name for name in dict.fromkeys(own) if name in wanted]
