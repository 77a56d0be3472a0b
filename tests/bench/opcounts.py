"""published op counts: ours, each thing that their authors' graphs do otherwise added one by one, and where ops are placed"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker import models
from ane_sweep.worker.models._types import Model
from tests.bench import Row, _placed

# Counts do not depend on widths, so the widths are small: 12 layers, 12 heads, 512 tokens are what counts.
ARCH = {
    "activation_function": "gelu_new", "n_embd": 48, "n_head": 12, "n_layer": 12, "n_positions": 512, "vocab_size": 96,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
MODEL = Model(family="gpt2", task="causal_lm", arch=ARCH)
SEQ_LEN = 512


@dataclass(frozen=True)
class Published:
    """A count from smpanaro/more-ane-transformers, src/experiments/NOTES.md of 25 March 2023 (Xcode, CPU and Neural
    Engine together), and where its graph differs from ours: (what, step), in the order in which they are added.
    """

    name: str
    count: int
    variant: str
    options: dict[str, Any]
    steps: tuple[tuple[str, Callable[["Form"], None]], ...]


@dataclass
class Form:
    """A graph in the making: the module, shapes of its float inputs where not ours, and passes that are left out."""

    module: Any
    floats: dict[str, tuple[int, ...]]
    without: set[str]


def run() -> list[Row]:
    """A row a graph: ours, then with each difference; the last is as near to theirs as coremltools 9.0 gives it."""
    graphs = [Row(what, f"{ops} ops", str(published), f"{ops / published:.2f}") for what, ops, published in counts()]
    return [*graphs, *_placed.rows()]


def counts() -> list[tuple[str, int, int]]:
    """(what, ops of ours, published) for every row."""
    found = []
    for case in PUBLISHED:
        form = ours(case)
        before = count(form)
        found.append((f"{case.name}: ours", before, case.count))
        for what, step in case.steps:
            step(form)
            now = count(form)
            found.append((f"  {what} ({now - before:+d})", now, case.count))
            before = now
    return found


def ours(case: Published) -> Form:
    from ane_sweep.worker.models import weights

    options = Options(**case.options)
    family, state = models.get("gpt2"), weights.make_random_state(MODEL, 0)
    module = family.VARIANTS[case.variant](MODEL, state, SEQ_LEN, options)
    ports = family.ports(MODEL, SEQ_LEN, options)
    return Form(module, {port.name: port.shape for port in ports.inputs[1:]}, set())


def count(form: Form) -> int:
    """Ops of the converted program that are no constants; all in fp16, for iOS15, as the notes had it."""
    import coremltools as ct
    import numpy as np
    import torch

    from ane_sweep.worker.programs.mlprogram import precision
    from ane_sweep.worker.programs.mlprogram.shortcuts import take_shortcuts

    examples = [torch.zeros((1, SEQ_LEN), dtype=torch.int32), *(torch.zeros(shape) for shape in form.floats.values())]
    pipeline = precision.build_pipeline(precision.Fp32Ops(PLAIN, []))
    pipeline.remove_passes(form.without)
    with torch.no_grad():
        traced = torch.jit.trace(form.module.eval(), tuple(examples), check_trace=False)
    with take_shortcuts():
        model = ct.convert(
            traced,
            inputs=[
                ct.TensorType("input_ids", (1, SEQ_LEN), dtype=np.int32),
                *(ct.TensorType(name, shape) for name, shape in form.floats.items()),
            ],
            outputs=[ct.TensorType("logits", dtype=np.float32)],
            convert_to="mlprogram",
            minimum_deployment_target=ct.target.iOS15,
            compute_precision=ct.precision.FLOAT16,
            pass_pipeline=pipeline,
            skip_model_load=True,
        )
    return sum(op.op_type != "const" for op in model._mil_program.functions["main"].operations)


def _single_norms(form: Form) -> None:
    form.without.add("common::fuse_layernorm_or_instancenorm")


def _written_gelu(form: Form) -> None:
    """nanoGPT's formula, and the pass that would make one op of it left out."""
    import torch

    class Gelu(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 0.5 * x * (1.0 + torch.tanh((2.0 / torch.pi) ** 0.5 * (x + 0.044715 * torch.pow(x, 3.0))))

    form.without.add("common::fuse_gelu_tanh_approximation")
    for layer in getattr(form.module, "layers", None) or form.module.hf.transformer.h:
        (layer.feed_forward if hasattr(layer, "feed_forward") else layer.mlp).act = Gelu()


def _scaled_scores(form: Form) -> None:
    """Each head's scores scaled after the product."""
    import torch

    def head(factor: float, q: Any, k: Any, v: Any, masks: list[Any]) -> Any:
        scores = torch.einsum("bchq,bkhc->bkhq", q, k) * factor
        for mask in masks:
            scores = scores + mask
        return torch.einsum("bkhq,bchk->bchq", scores.softmax(dim=1), v)

    for layer in form.module.layers:
        layer.attention._head = partial(head, layer.attention.scale)
        layer.attention.scale = 1.0


def _their_edges(form: Form) -> None:
    """Masks ready to be added, rows looked up as (S, C), logits cut out of (S, V, 1, 1)."""
    form.floats = {"qk_mask": (1, SEQ_LEN, 1, SEQ_LEN), "k_mask": (1, SEQ_LEN, 1, 1)}
    form.module = _edges(form.module)


def _edges(inner: Any) -> Any:
    import torch.nn.functional as F
    from torch import Tensor, nn

    class Edges(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner
            self.table = nn.Parameter(inner.embedding.table[:, :, 0, 0])
            self.positions = nn.Parameter(inner.embedding.positions[0, :, 0].t().contiguous())

        def forward(self, ids: Tensor, qk_mask: Tensor, k_mask: Tensor) -> Tensor:
            x = (F.embedding(ids, self.table) + self.positions).transpose(1, 2).unsqueeze(2)
            for layer in self.inner.layers:
                x = layer(x, qk_mask, k_mask)
            (head,) = self.inner.head.parts
            logits: Tensor = head(self.inner.norm(x).permute(3, 1, 0, 2))
            return logits.squeeze().unsqueeze(0)

    return Edges()


PUBLISHED = (
    Published(
        "GPT-2 split_einsum with QK and K masks",
        1323,
        "split_einsum",
        {"mask": "qk_and_k"},
        (
            ("scores scaled after each head's product", _scaled_scores),
            ("norms as single ops", _single_norms),
            ("GELU as single ops", _written_gelu),
            ("masks, lookup and head as in its code", _their_edges),
        ),
    ),
    Published("nanoGPT", 483, "original", {"head": "last"}, (("GELU as single ops", _written_gelu),)),
)
