"""Declarations of families of transformers' checkpoints; `_decoder.py`, `_encoder.py` and `_tower.py` hold three shapes."""

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models._ports import Ports
from ane_sweep.worker.models._types import Dynamic, Model

Renamed = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]

# Attention as the plain matmul-softmax-matmul that transformers calls "eager". "sdpa" gives a fused op whose lowering
# changes with the target OS (one op from iOS18 on, a decomposition below), which would make the target axis
# change the graph; eager converts to the same ops everywhere.
ATTENTION = "eager"


@dataclass(frozen=True, kw_only=True)
class Family(ABC):
    """Base of the declarations: what a family's module holds (`models/__init__.py`), but for SERVES.

    config            class of transformers
    builds            task -> class of transformers, which is built without its pooler
    ignored, renamed  IGNORED and RENAMED
    """

    config: str
    builds: Mapping[str, str]
    ignored: tuple[str, ...] = ()
    renamed: Renamed = ()

    def members(self) -> dict[str, object]:
        """Return what the family's module holds, by name."""
        variants = {"original": self.original, "split_einsum": self.split_einsum}
        functions = {"VARIANTS": variants, "skeleton": self.skeleton, "ports": self.ports}
        return {**functions, "IGNORED": self.ignored, "RENAMED": self.renamed}

    def configure(self, model: Model) -> Dynamic:
        """Return transformers' configuration. Raises ValueError if the family does not build the model's task."""
        import transformers

        if model["task"] not in self.builds:
            first, *more = self.builds
            known = f"tasks {', '.join(self.builds)}" if more else f"task {first!r}"
            raise ValueError(f"family {model['family']} knows the {known}, not {model['task']!r}")
        config: Dynamic = getattr(transformers, self.config)(**model["arch"], attn_implementation=ATTENTION)
        return config

    def skeleton(self, model: Model) -> nn.Module:
        """Build Hugging Face's module for the model's task, without unused heads."""
        return self.build(model, self.configure(model))

    def build(self, model: Model, config: Dynamic) -> nn.Module:
        import transformers

        kind: Any = attrgetter(self.builds[model["task"]])(transformers)
        has_pooler = "add_pooling_layer" in inspect.signature(kind).parameters
        module: nn.Module = kind(config, add_pooling_layer=False) if has_pooler else kind(config)
        return module

    @abstractmethod
    def ports(self, model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
        """Return inputs and outputs under these options, the same for both variants."""

    @abstractmethod
    def original(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build Hugging Face's module with its own layers."""

    @abstractmethod
    def split_einsum(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build the encoder in the form for the Neural Engine, with Hugging Face's weights."""
