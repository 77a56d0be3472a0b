"""Loading and calling of the user's own code, with every failure reported as one sentence, and its module's weights."""

import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from ane_sweep import installed, native_errors
from ane_sweep.errors import StageError, WeightsError
from ane_sweep.worker.models import _mapped, weights
from ane_sweep.worker.models._safetensors import SafetensorsFile
from ane_sweep.worker.models._types import OwnArch

_PRINTED_BYTES = 1 << 20  # the user's output beyond this is cut off
_SHOWN = 5  # names in a sentence


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Run a call of the user's code in this context. Raises StageError for any of its errors, with the user's own line."""
    pid = os.getpid()
    try:
        yield
    except StageError:
        raise
    except SystemExit as error:
        raise StageError(f"{what} called sys.exit({error.code!r}){_locate_error(error)}") from None
    except BaseException as error:
        raise StageError(f"{what} raised {_describe_error(error)}{_locate_error(error)}{_advise(error)}") from error
    finally:
        if os.getpid() != pid:  # the user's code forked, and this is the copy: one task has one result
            os._exit(0)
        _cut_output()


def _describe_error(error: BaseException) -> str:
    text = native_errors.text_of(error).strip().splitlines()
    sentence = f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
    cause = error.__cause__ if isinstance(error, ImportError) else None  # transformers says "could not import" alone
    return sentence if cause is None else f"{sentence} Because: {_describe_error(cause)}"


def _locate_error(error: BaseException) -> str:
    """Return the last line of the user's own code in the traceback: ` (nets.py line 12, in forward)`."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({Path(error.filename).name} line {error.lineno})"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if is_user_code(one.filename)]
    return f" ({Path(frames[-1].filename).name} line {frames[-1].lineno}, in {frames[-1].name})" if frames else ""


def is_user_code(file: str) -> bool:
    return file.endswith(".py") and not installed.is_installed(Path(file))


def _advise(error: BaseException) -> str:
    """Return a remedy for a known error, or an empty text."""
    text = native_errors.text_of(error)
    if "not compiled with CUDA" in text or "Found no NVIDIA driver" in text or ("CUDA" in text and "device" in text):
        return "; it asks for a GPU, and it is built and traced on the CPU: leave .cuda() and device='cuda' out"
    if "no known parent package" in text:
        return "; a file alone has no package: give it as model.path=PACKAGE.MODULE:NAME from the folder that holds the package"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"; {error.name} is neither installed nor in the file's folder"
    return ""


def _cut_output() -> None:
    """Cut both output streams, which are files in the run's folder, to `_PRINTED_BYTES`."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
            number = stream.fileno()
            if os.fstat(number).st_size > _PRINTED_BYTES:
                os.ftruncate(number, _PRINTED_BYTES)
                os.lseek(number, 0, os.SEEK_END)
        except (OSError, ValueError):
            pass


def load_object(arch: OwnArch, code: Path, file: Path | None) -> Callable[..., object]:
    """Return the object that model.path refers to. Raises StageError."""
    path = arch["path"]
    place, _, name = path.rpartition(":")
    _find_modules_in([*([file.parent] if file else []), code])
    _check_file(arch, path, file)
    with user_code(f"model.path={path}: importing it"):
        module = _from_file(file) if file else importlib.import_module(place)
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            names = ", ".join(sorted(other for other in vars(value) if not other.startswith("_"))[:20])
            raise StageError(f"model.path={path}: {place} has no {part!r}; it has: {names or 'nothing'}")
        value = getattr(value, part)
    return value


def _find_modules_in(folders: list[Path]) -> None:
    """Let Python import from these folders, after the standard library and before installed packages.

    Old bytecode is not used, as its source may have changed within the same second, and no bytecode is written to these
    folders.
    """
    sys.dont_write_bytecode = True
    sys.pycache_prefix = os.path.join(os.environ.get("TMPDIR", "/tmp"), "pycache")
    library = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    first = next((n for n, path in enumerate(sys.path) if path in library), len(sys.path))
    sys.path[first:first] = [str(folder) for folder in folders if str(folder) not in sys.path]


def _check_file(arch: OwnArch, path: str, file: Path | None) -> None:
    if file is None:
        return
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StageError(f"model.path={path}: {file} cannot be read any more: {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != arch["files"][file.name]:
        raise StageError(_describe_change(path, file.name))


def _describe_change(path: str, name: str) -> str:
    return (
        f"model.path={path}: {name} has changed since this was planned, or it changes itself; run the same command again to "
        "plan anew"
    )


def _from_file(file: Path) -> ModuleType:
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_of_model_path"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def check_imports(arch: OwnArch, before: set[str]) -> None:
    """Check that the user's code imported only files whose digests are in the key. Raises StageError.

    before   names of the modules that were imported before it
    """
    planned = set(arch["files"].values())
    for name, module in [item for item in sys.modules.items() if item[0] not in before]:
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not is_user_code(file):
            continue
        try:
            content = Path(file).read_bytes()
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() in planned:
            continue
        if {name, Path(file).name} & arch["files"].keys():
            raise StageError(_describe_change(arch["path"], Path(file).name))
        raise StageError(
            f"model.path={arch['path']}: it imports {name} ({file}) in a way that is not seen by reading its import "
            f"statements, so a change of that file would go unnoticed; name it: model.sources=[{file}]"
        )


def redraw(inner: nn.Module, seed: int) -> None:
    """Draw all parameters again, each from the seed and its name."""
    for name, value in inner.named_parameters():
        if value.dim() < 2:
            mean, std = (1.0, 0.02) if name.endswith("weight") else (0.0, 0.02)
        else:
            mean, std = 0.0, (value.numel() / value.shape[0]) ** -0.5
        value.data.copy_(weights.draw_tensor(f"{seed}:{name}", tuple(value.shape), mean, std))
        _mapped.release_pages(value.data_ptr())


def set_norm_statistics(inner: nn.Module, run: Callable[[], object]) -> None:
    """Set the statistics of batch norms to those of one pass, which `run` makes.

    Random values may otherwise shrink or grow from layer to layer, beyond the range of fp16.
    """
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
    norms = [norm for norm in inner.modules() if isinstance(norm, kinds) and norm.track_running_stats]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean over all passes, here a single one
        norm.train()
    try:
        with torch.no_grad():
            run()
    except StageError:  # a single number a channel has no spread: those norms keep their statistics
        pass
    for norm in norms:
        norm.eval()


def load_weights(inner: nn.Module, file: Path, path: str) -> None:
    """Load a safetensors file into the module. Raises WeightsError that names tensors which do not fit."""
    source = SafetensorsFile(file)
    state = {name: source.view(name) for name in source.shapes}
    own = inner.state_dict()
    wrong = [
        f"{name} is {list(state[name].shape)}, not {list(own[name].shape)}"
        for name in own
        if name in state and state[name].shape != own[name].shape
    ]
    tied = {own[name].data_ptr() for name in own if name in state}
    lacking = [
        name for name in own
        if name not in state and own[name].data_ptr() not in tied and not name.endswith("num_batches_tracked")
    ]  # fmt: skip
    for what, names in (
        ("lacks", lacking), ("holds, and the module does not,", [name for name in state if name not in own]), ("of another shape:", wrong),
    ):  # fmt: skip
        if names:
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise WeightsError(f"model.path={path}: {file} {what} {', '.join(names[:_SHOWN])}{more}")
    with _mapped.BuildInFiles(source=source):
        inner.load_state_dict(state, strict=False)
