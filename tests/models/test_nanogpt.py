"""nanoGPT's checkpoints onto the family gpt2, against nanoGPT's own arithmetic written out on its own tensors."""

import json
import subprocess
import sys
import zipfile

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tiny import option

from ane_sweep.errors import ConfigError, WeightsError
from ane_sweep.planner import checkpoints
from ane_sweep.worker import models
from ane_sweep.worker.models import weights

ARGS = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 12, "bias": True, "vocab_size": 40, "dropout": 0.1}
PATH = {"kind": "path", "digest": "x", "allow_pickle": True}


def tensors(bias: bool) -> dict[str, torch.Tensor]:
    """A state as nanoGPT's GPT(...).state_dict() gives it: linear layers (out, in), head and table both listed."""
    generator = torch.Generator().manual_seed(5)

    def some(*shape: int, middle: float = 0.0) -> torch.Tensor:
        return middle + 0.3 * torch.randn(shape, generator=generator)

    c = ARGS["n_embd"]
    made = {"transformer.wte.weight": some(40, c), "transformer.wpe.weight": some(12, c)}
    linear = {"attn.c_attn": (3 * c, c), "attn.c_proj": (c, c), "mlp.c_fc": (4 * c, c), "mlp.c_proj": (c, 4 * c)}
    for i in range(ARGS["n_layer"]):
        made |= {f"transformer.h.{i}.{name}.weight": some(*shape) for name, shape in linear.items()}
        made |= {f"transformer.h.{i}.{name}.weight": some(c, middle=1.0) for name in ("ln_1", "ln_2")}
        made |= {f"transformer.h.{i}.{name}.bias": some(shape[0]) for name, shape in linear.items() if bias}
        made |= {f"transformer.h.{i}.{name}.bias": some(c) for name in ("ln_1", "ln_2") if bias}
        made[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, 12, 12).tril()  # its mask, in old checkpoints
    made |= {"transformer.ln_f.weight": some(c, middle=1.0)} | ({"transformer.ln_f.bias": some(c)} if bias else {})
    return made | {"lm_head.weight": made["transformer.wte.weight"].clone()}


def theirs(state: dict[str, torch.Tensor], ids: torch.Tensor) -> torch.Tensor:
    """nanoGPT's forward pass on its own tensors: logits (1, S, V)."""
    get = state.get
    mask = torch.full((ids.shape[1],) * 2, float("-inf")).triu(1)

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], get(f"{name}.bias"), 1e-5)

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], get(f"{name}.bias"))

    x = state["transformer.wte.weight"][ids] + state["transformer.wpe.weight"][: ids.shape[1]]
    for i in range(ARGS["n_layer"]):
        at = f"transformer.h.{i}."
        q, k, v = linear(norm(x, at + "ln_1"), at + "attn.c_attn").split(16, dim=2)
        q, k, v = (y.view(1, -1, 2, 8).transpose(1, 2) for y in (q, k, v))
        y = (q @ k.transpose(-2, -1) / 8**0.5 + mask).softmax(-1) @ v
        x = x + linear(y.transpose(1, 2).reshape(x.shape), at + "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ state["lm_head.weight"].t()


def write(folder, form: str, bias: bool, state: dict[str, torch.Tensor]):
    args = {**ARGS, "bias": bias}
    if form == "safetensors":
        save_file(state, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(args))
    else:
        renamed = {f"_orig_mod.{name}" if form == "compiled" else name: tensor for name, tensor in state.items()}
        optimizer = {
            "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(2)}},
            "param_groups": [{"lr": 1e-3}],
        }
        more = {"optimizer": optimizer, "iter_num": 7, "best_val_loss": torch.tensor(1.5), "config": {"dataset": "x"}}
        torch.save({"model": renamed, "model_args": args, **more}, folder / "ckpt.pt")
    return folder


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", ["plain", "compiled", "safetensors"])
def test_a_checkpoint_computes_what_nanogpt_computes(tmp_path, form, bias):
    state = tensors(bias)
    folder = write(tmp_path, form, bias, state)
    source = checkpoints.resolve(
        option("nanogpt"), str(folder), seed=0, allow_pickle=form != "safetensors", digests=tmp_path / "digests.json"
    )
    assert (source.layers, source.max_seq_len, source.arch["vocab_size"], source.cut_points) == (2, 12, 40, 5)
    assert "another architecture" in source.notes[0]
    model = {"family": "gpt2", "task": "causal_lm", "arch": dict(source.arch)}
    ids = torch.arange(11, dtype=torch.int32)[None] * 3 % 40
    expected = theirs(state, ids)
    loaded = weights.load_state(PATH, folder, model)
    for variant, make in models.get("gpt2").VARIANTS.items():
        with torch.no_grad():
            (logits,) = make(model, loaded, 11)(ids)
        assert (logits - expected).abs().max() < 1e-4 * expected.abs().max(), variant


def test_a_pickle_needs_trust_and_runs_nothing(tmp_path):
    folder = write(tmp_path, "plain", True, tensors(True))
    with pytest.raises(ConfigError, match=r"only as a pickle \(ckpt\.pt\).*allow_pickle=true"):
        checkpoints.resolve(option("nanogpt"), str(folder), seed=0, allow_pickle=False, digests=tmp_path / "d")
    model = {"family": "gpt2", "task": "causal_lm", "arch": option("tiny-gpt2")["arch"]}
    with pytest.raises(WeightsError, match=r"ckpt\.pt is a pickle"):
        weights.load_state({**PATH, "allow_pickle": False}, folder, model)

    class Evil:
        def __reduce__(self):
            return print, ("owned",)

    torch.save({"model": {}, "model_args": Evil()}, folder / "ckpt.pt")
    with pytest.raises(ConfigError, match=r"not a checkpoint of nanoGPT .*asks for __builtin__\.print"):
        checkpoints.resolve(option("nanogpt"), str(folder), seed=0, allow_pickle=True, digests=tmp_path / "d")


def zipped(folder, content: bytes):
    with (
        zipfile.ZipFile(folder / "ckpt.pt", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("archive/data.pkl", "w", force_zip64=True) as stream,
    ):
        stream.write(content)
    return folder


BOMBS = {
    "it unpacks to 300 MB": b"\x80\x02" + bytes(300 << 20),
    "it copies a large dictionary 1,000 times": b"\x80\x02("
    + b"ccollections\nOrderedDict\n(("
    + b"".join(b"(I%d\nNl" % number for number in range(100_000))
    + b"lp0\ntR"
    + b"ccollections\nOrderedDict\n(g0\ntR" * 1000
    + b"l.",
}
READ = """
import resource, sys
from pathlib import Path
from ane_sweep.bridge import nanogpt
from ane_sweep.errors import ConfigError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    nanogpt.model_args(Path(sys.argv[1]), "nanogpt")
except ConfigError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_within_little_memory(tmp_path, content):
    folder = zipped(tmp_path, content)
    done = subprocess.run([sys.executable, "-c", READ, folder / "ckpt.pt"], capture_output=True, text=True, check=True)
    message, mebibytes = done.stdout.strip().splitlines()
    assert "is not a checkpoint of nanoGPT" in message and int(mebibytes) < 200


@pytest.mark.parametrize("content", [b"", b"PK\3\4 not a zip", None])
def test_what_is_no_checkpoint_is_said(tmp_path, content):
    if content is None:
        torch.save({"weights": torch.ones(2)}, tmp_path / "ckpt.pt")
    else:
        (tmp_path / "ckpt.pt").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a checkpoint of nanoGPT"):
        checkpoints.resolve(option("nanogpt"), str(tmp_path), seed=0, allow_pickle=True, digests=tmp_path / "d")


def test_another_familys_option_and_missing_arguments_are_named(tmp_path):
    folder = write(tmp_path, "safetensors", True, tensors(True))
    with pytest.raises(ConfigError, match="holds a nanoGPT checkpoint, this option needs 'bert'"):
        checkpoints.resolve(option("tiny-bert"), str(folder), seed=0, allow_pickle=False, digests=tmp_path / "d")
    (folder / "config.json").write_text(json.dumps({"block_size": 12, "n_layer": 2}))
    with pytest.raises(ConfigError, match="its model_args lack n_head, n_embd, bias, vocab_size"):
        checkpoints.resolve(option("nanogpt"), str(folder), seed=0, allow_pickle=False, digests=tmp_path / "d")
