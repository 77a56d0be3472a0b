"""What went wrong beneath us: how native code says that memory or a disk is full."""

import errno
import os
from collections.abc import Iterator

# How native code says that an allocation was refused, in lower case: torch's allocator, the C library's ENOMEM,
# libstdc++, numpy, Rust's allocator (safetensors, tokenizers), the Metal backend,
# libgomp (no room for a thread's stack).
_MEMORY_SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "defaultcpuallocator",
    "std::bad_alloc",
    "unable to allocate",
    "memory allocation of",
    "out of memory",
    "memoryerror",
    "thread creation failed",
)
_SPACE_SIGNS = ("no space left on device", "os error 28", "disk quota exceeded")
_SPACE_ERRNOS = (errno.ENOSPC, errno.EDQUOT)


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """The error itself, then what it was raised from, outermost first."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def speaks_of_memory(text: str) -> bool:
    """Whether a message or a stderr holds one of the phrases by which native code reports a refused allocation."""
    lowered = text.lower()
    return any(sign in lowered for sign in _MEMORY_SIGNS)


def speaks_of_space(error: BaseException) -> bool:
    """Whether an error means a full disk or an exhausted quota, also where native code says it only in words."""
    if isinstance(error, OSError) and error.errno in _SPACE_ERRNOS:
        return True
    return not isinstance(error, MemoryError) and tells_of_space(str(error))


def tells_of_space(text: str) -> bool:
    """The same of what somebody said."""
    return any(sign in text.lower() for sign in _SPACE_SIGNS)


def no_space_reason(where: str | os.PathLike[str] | None) -> str:
    """The sentence for a full disk; `where` is the file or folder that was being written."""
    return (
        f"no space left on device while writing {os.fspath(where) if where else 'its files'}; "
        "free space or move outputs with out=PATH; nothing half-written stays"
    )


def explained(error: OSError) -> str:
    """One sentence for what the system refused, with the next step where there is one."""
    if speaks_of_space(error):
        return no_space_reason(error.filename)
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    return f"{where}{error.strerror or error}"
