"""nanoGPT's checkpoints for the family gpt2: how to recognise one, and how to read its architecture. Standard library
only, as the planner imports it.

A folder holds either `ckpt.pt`, as nanoGPT's train.py writes it (a pickle: {"model": state, "model_args": {...}, ...}),
or that state as model.safetensors beside a config.json that holds the model_args. Names and shapes of the state are for
models/_nanogpt.py.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path

from ane_sweep.bridge.settings import ModelSettings
from ane_sweep.errors import ConfigError
from ane_sweep.mil import untrusted

CKPT = "ckpt.pt"
MOST_PICKLE_BYTES = 4 << 20  # of data.pkl; of GPT-2 XL with its optimizer it has 0.3 MB
_ARGS = ("n_layer", "n_head", "n_embd", "block_size", "bias", "vocab_size")


def is_config(config: Mapping[str, object]) -> bool:
    """Return True if a config.json holds nanoGPT's model_args: those have block_size and no model_type, unlike Hugging Face's."""
    return "block_size" in config and "model_type" not in config


def is_checkpoint(folder: Path) -> bool:
    path = folder / "config.json"
    if not path.is_file():
        return (folder / CKPT).is_file()
    try:
        return is_config(untrusted.read_json(path))
    except (OSError, ValueError, TypeError):
        return False


def architecture(args: Mapping[str, object], option: ModelSettings, label: str) -> dict[str, object]:
    """Return the option's architecture with a checkpoint's numbers. A setting that model_args lack stays the option's:
    above all the activation, which became the exact GELU in 2023 (before: activation_function=gelu_new).

    Raises ConfigError for another family's option and for arguments that are missing.
    """
    if option.family != "gpt2":
        raise ConfigError(
            f"model={option.name}: {label} holds a nanoGPT checkpoint, this option needs {option.family!r}; use model=nanogpt"
        )
    if missing := [name for name in _ARGS if name not in args]:
        raise ConfigError(f"model={option.name}: {label}: its model_args lack {', '.join(missing)}")
    numbers = {name: args[name] for name in ("n_layer", "n_head", "n_embd", "vocab_size")}
    return {**option.arch, **numbers, "n_positions": args["block_size"]}


def model_args(path: Path, model: str) -> dict[str, object]:
    """Read `model_args` of a ckpt.pt, without PyTorch and without running anything that the pickle names.

    Format: torch.save's zip, whose data.pkl holds everything but the numbers. Raises ConfigError for another format.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            with archive.open(name) as stream:
                content = stream.read(MOST_PICKLE_BYTES + 1)
        if len(content) > MOST_PICKLE_BYTES:
            raise ValueError(f"{name} unpacks to more than {MOST_PICKLE_BYTES:,} bytes, without its tensors")
        args = dict(_Plain(io.BytesIO(content)).load()["model_args"])
    except Exception as error:  # of a file of a stranger's: zipfile and pickle raise whatever it makes them do
        raise ConfigError(
            f"model={model}: {path} is not a checkpoint of nanoGPT ({type(error).__name__}: {error}); it holds `model` and `model_args`, "
            "as nanoGPT's train.py saves them"
        ) from None
    return args


class _Ordered(OrderedDict[str, object]):
    """The OrderedDict of a pickle by torch.save: empty at first. A pickle that copies a large one again and again is refused."""

    def __init__(self) -> None:
        super().__init__()

    def __setstate__(self, state: object) -> None:
        """Ignore the module versions that PyTorch stores in a state's attributes."""


class _Plain(pickle.Unpickler):
    """An unpickler for containers and numbers: tensors become None, and everything else is refused."""

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        if (module, name) == ("collections", "OrderedDict"):
            return _Ordered
        if module == "torch._utils" and name.startswith("_rebuild_"):
            return _nothing
        if module == "torch":  # kinds of storage, sizes, dtypes: only ever handed to the above
            return _nothing
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")

    def persistent_load(self, pid: object) -> None:
        return None


def _nothing(*args: object) -> None:
    return None
