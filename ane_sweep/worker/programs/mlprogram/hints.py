"""Messages for failed conversions: the op, the line of the user's code behind it, and a known workaround.

coremltools only names the op. A traced graph has the lines: while coremltools reads the graph, each op is stored with
the Python stack that called it, and the frame of the failure contains the op.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import coremltools
import torch
from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode as Node

from ane_sweep import data, installed, native_errors
from ane_sweep.csv_files import read_csv
from ane_sweep.errors import StageError
from ane_sweep.worker.patches import replace_attributes

TABLE = Path(data.__file__).parent / "op_hints.csv"
_NODES = ("convert_single_node", "convert_nodes")  # functions of coremltools that hold the op in hand
_FRAME = re.compile(r"^(.+)\((\d+)\): (.+)$", re.MULTILINE)
_MISSING = re.compile(r"convert function for op '([^']+)' not implemented")
_REGISTER = (
    "write it with other ops of torch, or register a conversion of it in your own file "
    "(coremltools.converters.mil.register_torch_op)"
)


@contextmanager
def explain_failures() -> Iterator[None]:
    """Raise coremltools' errors about an op inside this context as StageErrors with a hint."""
    with _remember_lines():
        try:
            yield
        except (StageError, MemoryError):
            raise
        except Exception as error:
            if (sentence := explain_error(error)) is None:
                raise
            raise StageError(sentence) from error


def _remember_lines() -> AbstractContextManager[None]:
    made = Node.__dict__["from_torchscript_node"]

    def remembering(cls: type[Node], node: torch.Node, parent: object) -> Node:
        found = made.__func__(cls, node, parent)
        found.meta = {"source": node.sourceRange(), "is_view": _is_view(node, found.kind)}
        return found

    return replace_attributes([(Node, "from_torchscript_node", classmethod(remembering))])


def _is_view(node: torch.Node, kind: str) -> bool:
    """Return True if a reshape or flatten of a trace shares its input's memory, which depends on the input's strides."""
    if kind not in ("reshape", "flatten"):
        return False
    given, made = (next(ends()).type() for ends in (node.inputs, node.outputs))
    if not (isinstance(given, torch.TensorType) and isinstance(made, torch.TensorType)):
        return False
    sizes, strides, wanted = given.sizes(), given.strides(), made.sizes()
    if sizes is None or strides is None or wanted is None:  # of a graph that was not traced
        return False
    try:
        like = torch.empty_strided(sizes, strides, device="meta").reshape(wanted)
    except (RuntimeError, TypeError):
        return False
    return like._is_view()


def explain_error(error: BaseException) -> str | None:
    """Return one sentence about the op that failed, or None if the error is not about an op."""
    node = _find_failed_node(error)
    if node is None:
        return None
    kind: str = node.kind
    text = " ".join(native_errors.text_of(error).split())
    line = find_line((node.meta or {}).get("source", ""))
    place = f"torch op {kind!r}{f' ({line})' if line else ''}"
    if _MISSING.search(text):
        return (
            f"{place} has no conversion in coremltools {coremltools.__version__}; {find_workaround(kind) or _REGISTER}"
        )
    said = f"{place} cannot be converted: {type(error).__name__}: {text[:300]}"
    return f"{said}; {known}" if (known := find_workaround(kind)) else said


def _find_failed_node(error: BaseException) -> Node | None:
    """Return coremltools' node for the innermost op whose conversion raised the error, or None."""
    node, entry = None, error.__traceback__
    while entry is not None:
        frame = entry.tb_frame
        if frame.f_code.co_name in _NODES and "coremltools" in frame.f_code.co_filename:
            node = frame.f_locals.get("node", node)
        entry = entry.tb_next
    return node


def find_line(source: str) -> str:
    """Return the line of user code in the stack of an op (innermost first), as `nets.py line 12, in forward`.

    It is the first line outside installed packages, else the innermost one outside torch, else empty.
    """
    frames = [(Path(name), line, called) for name, line, called in _FRAME.findall(source)]
    frames = [one for one in frames if one[0].suffix == ".py"]  # "<frozen runpy>" is no file
    own = next((one for one in frames if not installed.is_installed(one[0])), None)
    other = next((one for one in frames if "/torch/" not in one[0].as_posix()), None)
    if (found := own or other) is None:
        return ""
    return f"{found[0].name} line {found[1]}, in {found[2]}"


def find_workaround(kind: str) -> str | None:
    """Return the workaround for an op, or None; an in-place form (`add_`) has the workaround of the plain op."""
    workarounds = {row["op"]: row["way"] for row in read_csv(TABLE)}
    return workarounds.get(kind) or workarounds.get(kind.rstrip("_"))
