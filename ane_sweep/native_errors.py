"""Recognition of errors of native code and of the system: refused memory, a full disk."""

import dis
import errno
import os
import re
from collections.abc import Iterator

# The whole beginning or end of a line that native code writes when an allocation is refused: torch's allocators, libstdc++,
# the C library's ENOMEM, Rust's allocator (safetensors, tokenizers), OpenBLAS, libgomp (no room for a thread's stack).
_MEMORY_LINES = re.compile(
    r"^(?:RuntimeError: |  what\(\):  )?(?:\[enforce fail at alloc_cpu\.cpp:\d+\]|std::bad_alloc$|MPS backend out of memory"
    r"|memory allocation of \d+ bytes failed|OpenBLAS error: Memory allocation|libgomp: Thread creation failed)"
    r"|: Cannot allocate memory$|Cannot allocate memory \(os error 12\)$",
    re.MULTILINE,
)
_SPACE_SIGNS = ("no space left on device", "os error 28", "disk quota exceeded")
_NO_SPACE = "no space left on device while writing"
_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then its causes, from the outermost to the first."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def text_of(error: BaseException) -> str:
    """Return an exception's message, or a sentence instead if its `__str__` raises."""
    try:
        return str(error)
    except BaseException as another:
        return f"its message cannot be read: its __str__ raised {type(another).__name__}"


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an exception means a refused allocation.

    Its type or its errno decides. For an error from native code, often a plain RuntimeError, its message counts too;
    the message of an error from Python code (the user's, for example) never does.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (_is_native(error) and reports_no_memory(text_of(error)))


def reports_no_memory(text: str) -> bool:
    """Return True if a line of the text is one by which native code reports a refused allocation."""
    return _MEMORY_LINES.search(text) is not None


def is_out_of_space(error: BaseException) -> bool:
    """Return True if an exception means a full disk or an exhausted quota; a message counts as in `is_out_of_memory`."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _SPACE_ERRNOS
    return not isinstance(error, MemoryError) and _is_native(error) and reports_no_space(text_of(error))


def reports_no_space(text: str) -> bool:
    """Return True if a text has one of the phrases for a full disk."""
    return any(sign in text.lower() for sign in _SPACE_SIGNS)


def _is_native(error: BaseException) -> bool:
    """Return True if no `raise` statement of Python raised this exception."""
    at = error.__traceback__
    if at is None:
        return False
    while at.tb_next is not None:
        at = at.tb_next
    return dis.opname[at.tb_frame.f_code.co_code[at.tb_lasti]] not in ("RAISE_VARARGS", "RERAISE")


def no_space_reason(where: str | os.PathLike[str] | None) -> str:
    """Return the sentence for a full disk; `where` is the file or folder that was being written."""
    return (
        f"{_NO_SPACE} {os.fspath(where) if where else 'its files'}; "
        "free space or move outputs with out=PATH; nothing half-written stays"
    )


def is_no_space_reason(reason: str | None) -> bool:
    """Return True for a sentence of `no_space_reason`."""
    return (reason or "").startswith(_NO_SPACE)


def explain(error: OSError) -> str:
    """Return one sentence for an error of the system, with the next step for a full disk."""
    if is_out_of_space(error):
        return no_space_reason(error.filename)
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    return f"{where}{error.strerror or error}"
