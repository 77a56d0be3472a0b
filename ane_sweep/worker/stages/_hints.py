"""Why a module could not be converted: the op, the line of code that it came from, and the way round where one is known.

coremltools says the op alone. A traced graph knows the lines: each op is remembered with the stack of Python that called it
while coremltools reads the graph, and the frame in which the conversion failed says which op it was.
"""

import csv
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ane_sweep import data
from ane_sweep.bridge import installed_in, trouble
from ane_sweep.errors import StageError

TABLE = Path(data.__file__).parent / "op_hints.csv"
_NODES = ("convert_single_node", "convert_nodes")  # functions of coremltools that hold the op in hand
_FRAME = re.compile(r"^(.+)\((\d+)\): (.+)$", re.MULTILINE)
_MISSING = re.compile(r"convert function for op '([^']+)' not implemented")
_REGISTER = (
    "write it with other ops of torch, or register a conversion of it in your own file "
    "(coremltools.converters.mil.register_torch_op)"
)


@contextmanager
def explained() -> Iterator[None]:
    """Around a conversion. Raises StageError with the hint in place of what coremltools raised for an op."""
    with _lines_remembered():
        try:
            yield
        except (StageError, MemoryError):
            raise
        except Exception as error:
            if (sentence := hint(error)) is None:
                raise
            raise StageError(sentence) from error


@contextmanager
def _lines_remembered() -> Iterator[None]:
    from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode as Node

    made = Node.__dict__["from_torchscript_node"]

    def remembering(cls: Any, node: Any, parent: Any) -> Any:
        found = made.__func__(cls, node, parent)
        found.meta = {"source": node.sourceRange(), "is_view": _is_view(node, found.kind)}
        return found

    Node.from_torchscript_node = classmethod(remembering)
    try:
        yield
    finally:
        Node.from_torchscript_node = made


def _is_view(node: Any, kind: str) -> bool:
    """Whether a reshape or flatten of a trace shares its input's memory, which depends on how that lies."""
    import torch

    if kind not in ("reshape", "flatten"):
        return False
    given, made = (next(ends()).type() for ends in (node.inputs, node.outputs))
    try:
        like = torch.empty_strided(given.sizes(), given.strides(), device="meta").reshape(made.sizes())
    except (RuntimeError, TypeError):  # of a graph that was not traced, whose sizes are not known
        return False
    return like._is_view()


def hint(error: BaseException) -> str | None:
    """One sentence, or None where the error is about no op."""
    node = _failed_on(error)
    if node is None:
        return None
    kind: str = node.kind
    text = " ".join(trouble.text_of(error).split())
    line = line_of((node.meta or {}).get("source", ""))
    place = f"torch op {kind!r}{f' ({line})' if line else ''}"
    if _MISSING.search(text):
        return f"{place} has no conversion in coremltools {_version()}; {way(kind) or _REGISTER}"
    said = f"{place} cannot be converted: {type(error).__name__}: {text[:300]}"
    return f"{said}; {known}" if (known := way(kind)) else said


def _failed_on(error: BaseException) -> Any:
    """The innermost op in whose conversion it was raised."""
    found, at = None, error.__traceback__
    while at is not None:
        frame = at.tb_frame
        if frame.f_code.co_name in _NODES and "coremltools" in frame.f_code.co_filename:
            found = frame.f_locals.get("node", found)
        at = at.tb_next
    return found


def line_of(source: str) -> str:
    """`nets.py line 12, in forward`: of the stack of an op, innermost first, the first line that is not installed; else the
    innermost outside torch."""
    frames = [(Path(name), line, called) for name, line, called in _FRAME.findall(source)]
    frames = [one for one in frames if one[0].suffix == ".py"]  # "<frozen runpy>" is no file
    own = next((one for one in frames if not installed_in.installed(one[0])), None)
    other = next((one for one in frames if "/torch/" not in one[0].as_posix()), None)
    if (found := own or other) is None:
        return ""
    return f"{found[0].name} line {found[1]}, in {found[2]}"


@cache
def table() -> dict[str, str]:
    """Op of torch, as coremltools calls it -> the way round."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["op"]: row["way"] for row in csv.DictReader(file)}


def way(kind: str) -> str | None:
    """In place of it: an op's in-place form (`add_`) has the way of the op."""
    known = table()
    return known.get(kind) or known.get(kind.rstrip("_"))


def _version() -> str:
    import coremltools

    return str(coremltools.__version__)
