"""Read or draw a model's state: Hugging Face tensor names -> fp32 tensors, complete and finite.

A state holds one tensor per parameter of the family's skeleton; tied weights appear once, under the name the module
lists first (`transformer.wte.weight`, never also `lm_head.weight`). A state that does not fit raises WeightsError.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ane_sweep.bridge import nanogpt
from ane_sweep.errors import WeightsError
from ane_sweep.mil import untrusted
from ane_sweep.worker import models
from ane_sweep.worker.models import _hf, _lazy, _nanogpt
from ane_sweep.worker.models._family import Renamed
from ane_sweep.worker.models._safetensors import SafetensorsFile
from ane_sweep.worker.models._types import Dynamic, Model, Tensors

_SAFETENSORS = "model.safetensors"
_PICKLE = "pytorch_model.bin"
# TensorFlow's names for layer norm's weight and bias, still in some BERT checkpoints (bert-base-uncased among them).
_OLD_NAMES = ((".gamma", ".weight"), (".beta", ".bias"))
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def load_state(
    weights: Mapping[str, object], checkpoint: Path | None, model: Model, *, lazy: bool = False
) -> dict[str, torch.Tensor]:
    """Return the state for `model`, from `checkpoint` or, for weights of kind "random", from `weights["seed"]`.

    lazy   the tensors are drawn or read on use (_lazy.py), and only then checked for values that are not finite

    Raises WeightsError for missing files, a pickle that is not explicitly allowed, a corrupt file, tensors missing,
    unknown or of another shape, values that are not finite, or a config.json that contradicts the model.
    """
    if weights["kind"] == "random":
        seed = weights.get("seed", 0)
        assert isinstance(seed, int)
        return make_random_state(model, seed, lazy=lazy)
    if checkpoint is None:
        raise WeightsError(f"weights of kind {weights['kind']!r} need a checkpoint folder and none was given")
    checkpoint = Path(checkpoint)
    _check_config(checkpoint, model)
    source: Tensors = _Checkpoint(checkpoint, bool(weights.get("allow_pickle")))
    if nanogpt.is_checkpoint(checkpoint):
        source = _nanogpt.NanogptTensors(source)
    wanted = parameter_shapes(model)
    chosen = _match_names(wanted, source, model)
    if lazy:
        return _lazy.make_lazy_state(wanted, lambda name: _read(source, {name: chosen[name]})[name])
    return _read(source, chosen)


def parameter_shapes(model: Model) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by name, tied ones once; built on the meta device, without memory."""
    return {name: tuple(tensor.shape) for name, tensor in build_meta_skeleton(model).named_parameters()}


def make_random_state(model: Model, seed: int, *, lazy: bool = False) -> dict[str, torch.Tensor]:
    """Draw weights that keep activations of moderate size; a tensor depends only on (seed, its name, its shape).

    Uniform, not normal: the bits are then the same on every machine, as no logarithm or cosine of the CPU is used.
    """
    module = build_meta_skeleton(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in module.named_parameters()}

    def draw(name: str) -> torch.Tensor:
        return draw_tensor(f"{seed}:{name}", shapes[name], *_choose_spread(module, name))

    return _lazy.make_lazy_state(shapes, draw) if lazy else {name: draw(name) for name in shapes}


def build_meta_skeleton(model: Model) -> nn.Module:
    """Build the family's Hugging Face module on the meta device, with tied weights. Raises WeightsError."""
    try:
        module: nn.Module = _hf.build_on_meta(lambda: models.get(model["family"]).skeleton(model))
    except Exception as error:  # transformers checks an architecture in ways and with errors of its own
        why = " ".join(str(error).split())[:300]
        raise WeightsError(f"no {model['family']} can be built of this architecture: {why}") from error
    _hf.tie_weights(module)
    return module


def _choose_spread(module: nn.Module, name: str) -> tuple[float, float]:
    """Return (mean, standard deviation) for a parameter: unit gain through linear layers, layer norms near identity."""
    owner, _, leaf = name.rpartition(".")
    layer: Dynamic = module.get_submodule(owner)
    if leaf == "bias":
        return 0.0, 0.02
    if leaf != "weight":  # a parameter of a module's own: positions, a class's token, the scale of a residual
        return 0.0, layer.get_parameter(leaf).shape[-1] ** -0.5
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        return 0.0, layer.weight[0].numel() ** -0.5
    if layer.weight.dim() == 1:  # a norm; a fresh one holds the weight that changes nothing: 1, or 0 for Gemma
        kind: Any = type(layer)
        return (1.0 if isinstance(layer, nn.GroupNorm) else kind(1).weight.item()), 0.02
    if isinstance(layer, nn.Linear):
        return 0.0, layer.in_features**-0.5
    if isinstance(layer, nn.Embedding):
        return 0.0, layer.embedding_dim**-0.5
    return 0.0, layer.weight.shape[0] ** -0.5  # Hugging Face's Conv1D keeps (in, out)


def draw_tensor(key: str, shape: tuple[int, ...], mean: float, std: float) -> torch.Tensor:
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
    half_width = std * 3**0.5
    generator = torch.Generator().manual_seed(seed)
    return torch.empty(shape).uniform_(mean - half_width, mean + half_width, generator=generator)


class _Checkpoint:
    """The tensors of a checkpoint folder (see `_types.Tensors`), read file by file."""

    def __init__(self, folder: Path, allow_pickle: bool):
        self.folder = folder
        self.files: dict[str, Path] = {}
        self.opened: dict[Path, SafetensorsFile] = {}  # read once: lazy tensors ask one by one
        self.pickled = False
        paths = _list_files(folder, _SAFETENSORS)
        if not paths:
            paths, self.pickled = _list_files(folder, _PICKLE) or _list_files(folder, nanogpt.CKPT), True
            if not paths:
                raise WeightsError(f"no {_SAFETENSORS} (or {_SAFETENSORS}.index.json) in {folder}")
            if not allow_pickle:
                raise WeightsError(
                    f"{paths[0]} is a pickle, which can run code when it is read; convert it to "
                    "model.safetensors, or trust it by name with allow_pickle=true"
                )
        self.shapes: dict[str, tuple[int, ...]] = {}
        for path in paths:
            for name, shape in self._shapes_of(path):
                self.shapes[name], self.files[name] = shape, path

    def tensors(self, names: list[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield (name, tensor) for each name, and open each file once."""
        for path in sorted({self.files[name] for name in names}):
            here = [name for name in names if self.files[name] == path]
            if self.pickled:
                content = _unpickle(path)
                yield from ((name, content[name]) for name in here)
            else:
                for name in here:
                    yield name, self.opened[path].view(name)
                    self.opened[path].release_pages()

    def _shapes_of(self, path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
        if self.pickled:
            yield from ((name, tuple(t.shape)) for name, t in _unpickle(path).items() if isinstance(t, torch.Tensor))
            return
        self.opened[path] = SafetensorsFile(path)
        yield from self.opened[path].shapes.items()


def _list_files(folder: Path, name: str) -> list[Path]:
    """Return the file `name`, or the shards that its index lists, or nothing. Raises WeightsError."""
    if (folder / name).exists():
        return [folder / name]
    index = folder / f"{name}.index.json"
    if not index.exists():
        return []
    try:
        shards = list(untrusted.read_json(index)["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{index} is not a weight index ({error!r})") from error
    present = [untrusted.is_file_name(shard) and os.path.exists(folder / shard) for shard in shards]
    missing = sorted({str(shard)[:80] for shard, is_present in zip(shards, present) if not is_present})
    if missing:
        raise WeightsError(f"{index} lists {len(missing)} file(s) that are not beside it, e.g. {missing[0]!r}")
    return [folder / shard for shard in sorted(set(shards))]


def _unpickle(path: Path) -> dict[str, torch.Tensor]:
    try:
        # weights_only: tensors and plain containers; code in the pickle is refused even where pickles are allowed.
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise WeightsError(f"{path} cannot be read as a pickle of tensors ({error})") from error
    if path.name == nanogpt.CKPT and isinstance(content, dict):
        content = content.get("model")
    if not isinstance(content, dict):
        raise WeightsError(f"{path} holds a {type(content).__name__}, not a dictionary of tensors")
    return content


def _match_names(wanted: dict[str, tuple[int, ...]], source: Tensors, model: Model) -> dict[str, str]:
    """Return {parameter: its name in the checkpoint}. Raises WeightsError that names some tensors which do not match."""
    module, family = build_meta_skeleton(model), models.get(model["family"])
    ties: dict[str, str] = getattr(module, "all_tied_weights_keys", {})
    tied = {alias: target for alias, target in ties.items() if target in wanted}
    prefix = f"{getattr(module, 'base_model_prefix', '')}."
    ignored, renamed = getattr(family, "IGNORED", ()), getattr(family, "RENAMED", ())
    found: dict[str, str] = {}
    aliases: dict[str, str] = {}
    unexpected = []
    for name in source.shapes:
        target = next((s for s in _list_spellings(name, prefix, renamed) if s in wanted or s in tied), None)
        if target in tied:
            aliases[tied[target]] = name
        elif target is not None:
            found[target] = name
        elif not any(re.match(pattern, name) for pattern in ignored):
            unexpected.append(name)
    found = aliases | found  # an alias counts only where the checkpoint lacks the tensor it is tied to
    wrong = [
        f"{name} is {list(source.shapes[found[name]])}, the model's is {list(shape)}"
        for name, shape in wanted.items()
        if name in found and source.shapes[found[name]] != shape
    ]
    problems = {
        "missing": [name for name in wanted if name not in found],
        "of another shape": wrong,
        "unknown to the model": unexpected,
    }
    texts = [
        f"{len(items)} tensor(s) {what}: {', '.join(items[:3])}{' ...' if len(items) > 3 else ''}"
        for what, items in problems.items()
        if items
    ]
    if texts:
        raise WeightsError(
            f"the weights in {source.folder} do not fit the model ({model['family']}, {model['task']}): "
            + "; ".join(texts)
        )
    return found


def _list_spellings(name: str, prefix: str, renamed: Renamed) -> Iterator[str]:
    """Yield the module's possible names for a checkpoint's name: the same, without prefix, with prefix."""
    for pattern, new in renamed:
        name = re.sub(pattern, new, name)
    for old, new in _OLD_NAMES:
        if name.endswith(old):
            name = name.removesuffix(old) + new
    yield name
    if name.startswith(prefix):
        yield name.removeprefix(prefix)
    yield prefix + name


def _read(source: Tensors, chosen: dict[str, str]) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    parameters_by_name = {name: parameter for parameter, name in chosen.items()}
    for name, tensor in source.tensors(list(parameters_by_name)):
        if tensor.dtype not in _FLOATS:
            raise WeightsError(f"{name} in {source.folder} is {tensor.dtype}; weights must be fp32, fp16 or bf16")
        tensor = tensor.to(torch.float32, copy=True)  # it may be a view of the file
        low, high = torch.aminmax(tensor)  # NaN wins in both; one pass, no temporary of the tensor's size
        if not (torch.isfinite(low) and torch.isfinite(high)):
            raise WeightsError(
                f"{name} in {source.folder} has values that are not finite; the file is corrupt, fetch it again"
            )
        state[parameters_by_name[name]] = tensor
    return state


def _check_config(checkpoint: Path, model: Model) -> None:
    """Compare config.json with the model, as equal shapes may still belong to another model (heads, activation, epsilon)."""
    path = checkpoint / "config.json"
    if not path.exists():
        return
    try:
        config = dict(untrusted.read_json(path))
    except (OSError, ValueError, TypeError) as error:
        raise WeightsError(f"{path} is no JSON object ({error})") from error
    if differ := list(_find_differences(config, model["arch"], "")):
        raise WeightsError(f"{path} describes another model: {'; '.join(differ[:4])}")


def _find_differences(config: Mapping[str, object], arch: Mapping[str, object], prefix: str) -> Iterator[str]:
    for key, value in arch.items():
        own = config.get(key)
        if key.endswith("_config") and isinstance(own, dict) and isinstance(value, dict):  # such as CLIP's towers
            yield from _find_differences(own, value, f"{prefix}{key}.")
        elif key in config and config[key] != value:
            yield f"{prefix}{key} is {repr(config[key])[:80]}, the model's is {repr(value)[:80]}"
