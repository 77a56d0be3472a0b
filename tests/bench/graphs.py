"""published op counts of Apple's reference transformer, its DistilBERT and Stable Diffusion's UNet beside ours, with the ratio"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ane_sweep.planner import options
from tests.bench import Row

# Of more-ane-transformers, notes of 28 and 30 March 2023 (rounded there), and apple/ml-ane-transformers, README.
LADDER = {"ladder-base": 2700, "ladder-medium": 6000, "ladder-large": 10300, "ladder-xl": 16500}
UNET = {"split_einsum": (3500, 1600, 1900), "original": (1900, 915, 1000)}
DISTILBERT = 606

# Counts do not depend on widths, so they are small; layers and heads are those of the notes.


def run() -> list[Row]:
    """Conversions of up to four minutes each; the UNet's need diffusers."""
    rows = [_row(name, ladder(name), count) for name, count in LADDER.items()]
    rows += [
        _row(f"DistilBERT split_einsum{said}", distilbert(norm), DISTILBERT)
        for said, norm in (("", "fp16"), (", norms as single ops", "fp32_mean"))
    ]
    for variant, (whole, *parts) in UNET.items():
        counted = unet(variant)
        said = ("", ", chunk 1 of 2", ", chunk 2 of 2")
        rows += [
            _row(f"UNet {variant}{part}", ours, theirs) for part, ours, theirs in zip(said, counted, (whole, *parts))
        ]
    whole, *parts = UNET["split_einsum"]
    told = ", each head sliced, norms as single ops"
    counted = unet("split_einsum", as_published=True)
    rows += [
        _row(f"UNet split_einsum{told}{part}", ours, theirs)
        for part, ours, theirs in zip(said, counted, (whole, *parts))
    ]
    return rows


def _row(what: str, ours: int, theirs: int) -> Row:
    return Row(what, f"{ours} ops", f"{theirs}", f"{ours / theirs:.2f}", bar="0.90 to 1.10")


def ladder(name: str) -> int:
    """All its layers and heads, four channels a head."""
    model = _option(name)
    arch = {**model["arch"], "embed_dim": 4 * model["arch"]["nb_attention_heads"], "ffn_dim": 8}
    return _converted({**model, "arch": arch}, "split_einsum", 16, "iOS15", {"batch": 2})[0]


def distilbert(norm: str) -> int:
    model = _option("distilbert")
    arch = {**model["arch"], "dim": 48, "hidden_dim": 96, "vocab_size": 96}
    return _converted({**model, "arch": arch}, "split_einsum", 128, "iOS15", {} if norm == "fp16" else {"norm": norm})[
        0
    ]


def unet(variant: str, as_published: bool = False) -> tuple[int, int, int]:
    """(whole, first half, second half), cut by bytes of weights as `chunks=2` does."""
    model = _option("sd-1.4-unet")
    narrow = {
        "block_out_channels": [40, 80, 160, 160],
        "cross_attention_dim": 96,
        "norm_num_groups": 8,
        "sample_size": 16,
    }
    with _published_form() if as_published else nullcontext():
        whole, parts = _converted({**model, "arch": {**model["arch"], **narrow}}, variant, 1, "iOS16", {}, cut=True)
    first, second = parts
    return whole, first, second


@contextmanager
def _published_form() -> Iterator[None]:
    """apple/ml-stable-diffusion's graph as it is described and as coremltools 6 left it: each head is a slice of its own of
    queries, keys and values, where ours splits them at once, and layer norms are single ops, which coremltools 9 fuses."""
    import torch

    from ane_sweep.worker.models import unet as family
    from ane_sweep.worker.programs.mlprogram import convert, precision

    passes = precision.build_pipeline

    def forward(self: Any, x: Any, source: Any) -> Any:
        query, key, value = self.query(x), self.key(source).transpose(1, 3), self.value(source)
        width = query.shape[1] // self.heads
        cuts = [slice(n * width, (n + 1) * width) for n in range(self.heads)]
        return self.out(torch.cat([self._head(query[:, c], key[..., c], value[:, c]) for c in cuts], dim=1))

    def unfused(*given: Any, **named: Any) -> Any:
        pipeline = passes(*given, **named)
        pipeline.remove_passes({"common::fuse_layernorm_or_instancenorm"})
        return pipeline

    with patch.object(family.UnetAttention, "forward", forward), patch.object(convert, "build_pipeline", unfused):
        yield


def _option(name: str) -> dict[str, Any]:

    option = options.shipped("model", name)
    return {key: option[key] for key in ("family", "task", "arch")}


def _converted(
    model: dict[str, Any], variant: str, seq_len: int, target: str, options: dict[str, Any], cut: bool = False
) -> tuple[int, list[int]]:
    from ane_sweep.worker.stages import chunk, convert

    params = {
        "model": model, "weights": {"kind": "random", "digest": "random:0", "seed": 0}, "seq_len": seq_len,
        "variant": variant, "target": target, "compute": "fp16", "options": options,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        program, chunks = Path(folder, "program"), Path(folder, "chunks")
        for place in (program, chunks):
            place.mkdir()
        ops = convert.run(params, {}, program).facts["ops"]
        if not cut:
            return ops, []
        chunk.run({"count": 2, "by": "bytes", "own": "none", "pipeline": "manual"}, {"program": program}, chunks)
        return ops, [_ops(path) for path in sorted(chunks.glob("*.mlpackage"))]


def _ops(package: Path) -> int:
    from ane_sweep.mil import graph

    return sum(op.type != "const" for op in graph.load(package).ops)
