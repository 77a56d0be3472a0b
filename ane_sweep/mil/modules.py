"""Find the torch module that each op of a package comes from.

coremltools 9.0 knows it while it converts (`op.scopes`) and writes nothing of them: an op keeps a generated name, and a
weight the name of its parameter, dots as underscores. So a path is read, best first, from

    noted     names of weights, and the module names that our conversion notes in the package's metadata (NOTES_KEY)
    weights   names of weights alone: parted where the names branch and at numbers; `self_attn` stays whole only there
    names     names of ops, if no weight has a parameter's name
    nothing   no name tells anything, as with batch norms folded into convolutions

An op without a weight of its own gets the path that the ops with weights before and behind it have in common.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Literal

from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2

NOTES_KEY = "ane_sweep.modules"  # in a package's metadata: JSON, module path -> file and line of its class
Basis = Literal["noted", "weights", "names", "nothing"]
Path = tuple[str, ...]
LONGEST = 200  # characters of a name that is read: torch's are shorter, a hostile file's are not

_PARAMETER = re.compile(
    r"(?:(?P<module>.+?)_)?(?:weight|bias|gamma|beta|running_(?:mean|var)|in_proj_(?:weight|bias)|kernel)"
    r"(?:_(?:to_fp16|palettized|quantized|sparsified|indices|lut|quantized_data|scale|zero_point|mask|nonzero_data|promoted"
    r"(?:_to_fp16)?))*"
)
_GENERATED = re.compile(r"(?:op|var|const|input|x|hidden_states|transpose|linear|matmul|value|tensor)(?:_\d+)*")


@dataclass(frozen=True)
class Modules:
    """The module path of each op, "" for the model itself, by (function, name of the op's first output).

    lines: file and line of each module's class, where the conversion noted them.
    """

    paths: Mapping[tuple[str, str], str]
    basis: Basis
    lines: Mapping[str, str] = field(default_factory=dict)


def find_modules(package: Package) -> Modules:
    """Return the module path of every op that is no constant, those of nested blocks included."""
    walked = {
        name: _walk(function.block_specializations[function.opset].operations)
        for name, function in package.spec.mlProgram.functions.items()
        if function.opset in function.block_specializations
    }
    lines = _read_notes(package.spec.description.metadata.userDefined.get(NOTES_KEY, ""))
    names = {name for ops in walked.values() for op in ops for name in op.weights if len(name) <= LONGEST}
    basis: Basis = "noted" if lines else "weights"
    known = _match_notes(names, lines) if lines else _part(names)
    if not known:
        names = {op.name for ops in walked.values() for op in ops if len(op.name) <= LONGEST}
        known, basis = _part_op_names(names), "names"
        for op in (op for ops in walked.values() for op in ops):
            op.weights = [op.name]
    paths = {
        (function, op.name): ".".join(path)
        for function, ops in walked.items()
        for op, path in zip(
            ops, _fill_gaps([_common([known[one] for one in op.weights if one in known]) for op in ops])
        )
    }
    return Modules(paths, basis if known else "nothing", lines)


@dataclass
class _Walked:
    name: str
    weights: list[str]


def _walk(operations: Iterable[MIL_pb2.Operation]) -> list[_Walked]:
    """Return the ops that are no constants in file order, each with the weights that it is the first to read.

    Equal weights are stored once, under the name of the first: a later reader's module is another one.
    """
    made: dict[str, list[str]] = {}
    taken: set[str] = set()
    found: list[_Walked] = []

    def visit(block: Iterable[MIL_pb2.Operation]) -> None:
        for proto in block:
            outputs = [value.name for value in proto.outputs]
            read = [binding.name for argument in proto.inputs.values() for binding in argument.arguments]
            held = [name for one in read for name in made.get(one, ())]
            if proto.type.startswith("const"):  # const, and constexpr_... of compressed weights
                made.update({name: [name, *held] for name in outputs})
                continue
            found.append(_Walked(outputs[0] if outputs else "", [name for name in held if name not in taken]))
            taken.update(held)
            for inner in proto.blocks:
                visit(inner.operations)

    visit(operations)
    return found


def _read_notes(text: str) -> dict[str, str]:
    try:
        noted = json.loads(text or "{}")
    except ValueError:
        return {}
    items = noted.items() if isinstance(noted, dict) else ()
    return {path: str(line)[:LONGEST] for path, line in items if len(path) <= LONGEST}


def _match_notes(names: Iterable[str], lines: Iterable[str]) -> dict[str, Path]:
    """Return the noted module of each weight: the longest whose name, with underscores for dots, begins the weight's."""
    modules = {re.sub(r"\W", "_", path): path for path in lines if path}
    found = {}
    for name in names:
        ends = [match.start() for match in re.finditer("_", name)]
        fitting = (modules[name[:end]] for end in reversed(ends) if name[:end] in modules)
        if (path := next(fitting, None)) is not None:
            found[name] = tuple(path.split("."))
    return found


def _part(names: Iterable[str]) -> dict[str, Path]:
    """Return the path of each weight that has a parameter's name."""
    matched = {name: match["module"] or "" for name in names if (match := _PARAMETER.fullmatch(name))}
    # torch.export writes p_ before every parameter
    exported = bool(matched) and all(module == "p" or module.startswith("p_") for module in matched.values())
    bare = {name: (module[2:] if exported else module).strip("_") for name, module in matched.items()}
    parted = _branch(set(bare.values()))
    return {name: parted[module] for name, module in bare.items() if not _GENERATED.fullmatch(module)}


def _part_op_names(names: Iterable[str]) -> dict[str, Path]:
    """Return the path of each op whose name no converter made up; a converter from TensorFlow keeps its scopes in them."""
    bare = {name: re.sub(r"(?:_cast_fp16|_cast)+$", "", name) for name in names}
    told = {name: one for name, one in bare.items() if "_" in one and not re.fullmatch(r"[a-zA-Z]*(?:_\d+)*", one)}
    parted = _branch(set(told.values()))
    return {name: parted[one] for name, one in told.items()}


def _branch(names: set[str]) -> dict[str, Path]:
    """Part names at their numbers and where they branch: `h_0_ln_1`, `h_0_ln_2`, `h_0_attn_c` -> h.0.ln.1, h.0.ln.2, h.0.attn_c."""
    words = {name: tuple(name.split("_")) for name in names if name}
    following: dict[Path, set[str]] = {}
    for one in words.values():
        for end in range(len(one) + 1):
            following.setdefault(one[:end], set()).add(one[end] if end < len(one) else "")
    found: dict[str, Path] = {"": ()}
    for name, one in words.items():
        parts = [one[0]]
        for end in range(1, len(one)):
            is_number = one[end].isdigit() or one[end - 1].isdigit()
            if is_number or len(following[one[:end]]) > 1:
                parts.append(one[end])
            else:
                parts[-1] += f"_{one[end]}"
        found[name] = tuple(parts)
    return found


def _common(paths: Sequence[Path]) -> Path | None:
    """Return the beginning that paths share, or None if there is no path."""
    if not paths:
        return None
    return tuple(parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*paths)))


def _fill_gaps(anchors: Sequence[Path | None]) -> list[Path]:
    """Give each op without a path what the nearest ones before and behind it share; at an end, the model itself."""
    behind: list[Path | None] = []
    last: Path | None = None
    for path in reversed(anchors):
        last = path if path is not None else last
        behind.append(last)
    settled: list[Path] = []
    before: Path | None = None
    for path, after in zip(anchors, reversed(behind)):
        before = path if path is not None else before
        settled.append(path if path is not None else _common([before or (), after or ()]) or ())
    return settled
