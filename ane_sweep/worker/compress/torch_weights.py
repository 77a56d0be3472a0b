"""Compression of a torch module's weights by coreai-opt (0.3.0), before a converter sees it: both toolchains take its codes.

A recipe (bridge/recipes.py) compresses the weights of linear layers, convolutions and, of kinds linear and float,
embeddings; coreai-opt knows no others.
"""

import warnings
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ane_sweep import native_errors
from ane_sweep.bridge import recipes
from ane_sweep.bridge.programs import PROGRAMS
from ane_sweep.errors import StageError
from ane_sweep.worker.models._ports import Ports


@dataclass(frozen=True)
class CompressedModule:
    """A compressed module, the count of its weights that are compressed, and of all numbers before; warnings."""

    module: nn.Module
    weights: int
    numbers: int
    doubts: list[str]


def compress(module: nn.Module, ports: Ports, recipe: recipes.Recipe, program: str) -> CompressedModule:
    """Compress a module in place, in the form that the converter of a program kind reads.

    Raises StageError with coreai-opt's words if it refuses the module or the recipe.
    """
    from coreai_opt import ExportBackend

    _replace_conv1d(module)
    numbers = sum(value.numel() for value in module.parameters())
    examples = tuple(torch.zeros(port.shape, dtype=getattr(torch, port.dtype)) for port in ports.inputs)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            compressor = _choose(module, recipe)
            prepared = compressor.prepare(examples)
            changed = _list_changed(prepared)
            backend = ExportBackend[PROGRAMS[program].codes]
            made = compressor.finalize(prepared, backend=backend).eval()
            if backend is ExportBackend.CoreML:
                _finish_tied(made, changed)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        said = " ".join(native_errors.text_of(error).split())[:1000]
        raise StageError(f"coreai-opt does not compress it: {type(error).__name__}: {said}") from error
    codes = sum(one.numbers for one in changed.values())
    doubts = []
    if codes < numbers / 2:
        doubts = [
            f"coreai-opt compresses {codes:,} of the {numbers:,} numbers of the weights: it knows linear layers, convolutions (not for "
            "fp4) and, unless by tables or sparsity, embeddings; it leaves shapes that the recipe does not divide, and here weights of "
            f"fewer than min_elements={recipe['min_elements']} numbers"
        ]
    return CompressedModule(made, len(changed), numbers, doubts)


@dataclass(frozen=True)
class _Changed:
    owner: nn.Module
    name: str
    numbers: int


def _list_changed(module: nn.Module) -> dict[int, _Changed]:
    """Return the first owner of each weight that coreai-opt compresses, by the identity of its parametrization."""
    found: dict[int, _Changed] = {}
    for part in module.modules():
        for name, steps in getattr(part, "parametrizations", {}).items():
            found.setdefault(id(steps[0]), _Changed(part, name, steps.original.numel()))
    return found


def _finish_tied(module: nn.Module, changed: dict[int, _Changed]) -> None:
    """Finish the other owners of tied weights as the first one: for Core ML, coreai-opt 0.3.0 finalizes each weight once."""
    for part in module.modules():
        for name, steps in [*getattr(part, "parametrizations", {}).items()]:
            first = changed[id(steps[0])]
            parametrize.remove_parametrizations(part, name, leave_parametrized=True)
            setattr(part, name, getattr(first.owner, first.name))
            for key, value in first.owner.named_buffers(recurse=False):
                part.register_buffer(key, value)


def _replace_conv1d(module: nn.Module) -> None:
    """Replace GPT-2's Conv1D, which coreai-opt does not know, by the linear layer that it is."""
    from transformers.pytorch_utils import Conv1D

    for part in [*module.modules()]:
        for name, child in part.named_children():
            if isinstance(child, Conv1D):
                linear = nn.Linear(*child.weight.shape)
                linear.weight, linear.bias = nn.Parameter(child.weight.T.contiguous()), child.bias
                setattr(part, name, linear)


class _Compressor(Protocol):
    """The base class of coreai-opt's compressors, as used here."""

    def prepare(self, examples: tuple[Tensor, ...]) -> nn.Module: ...

    def finalize(self, module: nn.Module, *, backend: object) -> nn.Module: ...


def _choose(module: nn.Module, recipe: recipes.Recipe) -> _Compressor:
    """Return coreai-opt's compressor of a module for a recipe. It leaves weights below `min_elements` out, and convolutions for fp4."""
    is_fp4 = (recipe["kind"], recipe.get("bits")) == ("float", 4)  # whose blocks of 32 run along the inputs of a matrix
    small = [
        name for name, part in module.named_modules()
        if isinstance(weight := getattr(part, "weight", None), Tensor)
        and (weight.numel() < recipe["min_elements"] or (is_fp4 and weight.ndim > 2))
    ]  # fmt: skip
    if recipe["kind"] == "palettized":
        from coreai_opt import palettization as tables

        table = tables.ModuleKMeansPalettizerConfig(op_state_spec={"weight": _table_spec(recipe)})
        made: _Compressor = tables.KMeansPalettizer(
            module, tables.KMeansPalettizerConfig(global_config=table).without(small)
        )
    elif recipe["kind"] == "sparse":
        from coreai_opt import pruning

        zeros = pruning.PruningSpec(target_sparsity=recipes.parse_sparsity(recipe["sparsity"]))
        pruned = pruning.ModuleMagnitudePrunerConfig(op_state_spec={"weight": zeros})
        made = pruning.MagnitudePruner(module, pruning.MagnitudePrunerConfig(global_config=pruned).without(small))
    else:
        from coreai_opt import quantization as numbers

        scaled = numbers.ModuleQuantizerConfig(
            op_input_spec=None, op_output_spec=None, op_state_spec={"weight": _scale_spec(recipe)}
        )
        config = numbers.QuantizerConfig(global_config=scaled, execution_mode=numbers.ExecutionMode.EAGER)
        made = numbers.Quantizer(module, config.without(small))
    return made


def _table_spec(recipe: recipes.Recipe) -> object:
    from coreai_opt.palettization import spec

    grouped = recipe["granularity"] == "per_grouped_channel"
    return spec.PalettizationSpec(
        n_bits=recipe["bits"],
        granularity=spec.PerGroupedChannelGranularity(axis=0, group_size=recipe["group_size"])
        if grouped
        else spec.PerTensorGranularity(),
        enable_per_channel_scale=recipe["per_channel_scale"],
    )


def _scale_spec(recipe: recipes.Recipe) -> object:
    from coreai_opt.quantization import spec

    granularity: spec.QuantizationGranularity = spec.PerTensorGranularity()
    if recipe["granularity"] == "per_channel":
        granularity = spec.PerChannelGranularity()
    elif recipe["granularity"] == "per_block":
        granularity = spec.PerBlockGranularity(block_size=recipe["block_size"])
    if recipe["kind"] == "float":
        return spec.QuantizationSpec(
            dtype={8: "float8_e4m3fn", 4: "float4_e2m1fn"}[recipe["bits"]], granularity=granularity
        )
    is_even = recipe["mode"] == "symmetric"
    return spec.QuantizationSpec(
        dtype=f"{'' if is_even else 'u'}int{recipe['bits']}",
        qscheme=spec.QuantizationScheme.SYMMETRIC if is_even else spec.QuantizationScheme.ASYMMETRIC,
        granularity=granularity,
    )
