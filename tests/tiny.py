"""Tiny checkpoints made here: a folder as the hub would hold it, written with numpy alone (no torch in fast tests)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ane_sweep.bridge import axes
from ane_sweep.bridge.building import Options
from ane_sweep.planner import options

ONCE = "latency.repeats=1"  # for sweeps that are about something else: the default times in four processes
RAN = (0, 3)  # exit codes of a sweep that went well: 3 where some timing scattered, as it may on any machine

ARCH = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 300, "n_positions": 128, "n_embd": 32,
    "n_layer": 4, "n_head": 2, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "bos_token_id": 299,
    "eos_token_id": 299, "tie_word_embeddings": True,
}  # fmt: skip


def gpt2_checkpoint(folder: Path, *, seed: int = 0, **changes: int) -> Path:
    """config.json, model.safetensors (named as OpenAI's on the hub: no `transformer.` prefix) and a byte-level tokenizer."""
    arch = {**ARCH, **changes}
    width, rng = arch["n_embd"], np.random.default_rng(seed)
    shapes = {"wte.weight": (arch["vocab_size"], width), "wpe.weight": (arch["n_positions"], width)}
    for layer in range(arch["n_layer"]):
        shapes |= {
            f"h.{layer}.attn.c_attn.weight": (width, 3 * width), f"h.{layer}.attn.c_attn.bias": (3 * width,),
            f"h.{layer}.attn.c_proj.weight": (width, width), f"h.{layer}.attn.c_proj.bias": (width,),
            f"h.{layer}.mlp.c_fc.weight": (width, 4 * width), f"h.{layer}.mlp.c_fc.bias": (4 * width,),
            f"h.{layer}.mlp.c_proj.weight": (4 * width, width), f"h.{layer}.mlp.c_proj.bias": (width,),
        }  # fmt: skip
    norms = [f"h.{layer}.ln_{n}" for layer in range(arch["n_layer"]) for n in (1, 2)] + ["ln_f"]
    tensors = {name: rng.normal(0, 0.1, shape).astype(np.float32) for name, shape in shapes.items()}
    tensors |= {f"{name}.weight": np.ones(width, np.float32) for name in norms}
    tensors |= {f"{name}.bias": np.zeros(width, np.float32) for name in norms}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(arch))
    (folder / "tokenizer.json").write_text(json.dumps(_byte_tokenizer()))
    return folder


def _byte_tokenizer() -> dict:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return json.loads(tokenizer.to_str())


def option(name: str) -> dict:
    """A shipped model option."""
    return options.shipped("model", name)


def refused(chosen: Options, given: Mapping[str, Any] = {}, **more: Any) -> str | None:
    """Why options cannot be had together with the rest of a cell, which is a plain decoder's but for what is given."""
    cell = {"model": "x", "family": "gpt2", "task": "causal_lm", "variant": "original", "compute": "fp16", "seq_len": 64, "longest": 64,
            "ios_target": "iOS18", "vocabulary": 300, "copies": 1, "device": "local"}  # fmt: skip
    return axes.refusal(axes.declared(Options), {**vars(chosen), **cell, **given, **more})
