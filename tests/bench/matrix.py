"""24 cells of tiny GPT-2 on a cold cache, against a shell loop of 24 plain scripts (some 5 minutes)"""

import sys
import tempfile
from pathlib import Path

from tests.bench import Row, ane_sweep, timed

# What a user writes today for one cell: import, build, trace, convert, save, predict once. It neither cuts nor scores.
SCRIPT = """
import sys, tempfile
import numpy as np, torch, coremltools as ct
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
config = GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=1000, n_positions=512, attn_implementation="eager")
model = GPT2LMHeadModel(config).eval()
class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model
        self.register_buffer("mask", torch.full((64, 64), -1e4).triu(1)[None, None])
        self.register_buffer("positions", torch.arange(64)[None])
    def forward(self, ids):
        return self.model(ids, attention_mask=self.mask, position_ids=self.positions, use_cache=False, return_dict=False)[0]
ids = torch.zeros(1, 64, dtype=torch.int32)
with torch.no_grad():
    traced = torch.jit.trace(Wrapped(), ids)
    package = ct.convert(traced, inputs=[ct.TensorType(name="input_ids", shape=(1, 64), dtype=np.int32)],
                         minimum_deployment_target=ct.target.iOS18, skip_model_load=True)
    with tempfile.TemporaryDirectory() as folder:
        package.save(folder + "/model.mlpackage")
    traced(ids)
"""
MATRIX = [
    "-m", "model=tiny-gpt2", "weights=random", "seq_len=64", "variant=original,split_einsum", "chunks=1,2,4",
    "compute_units=all,cpu_only,cpu_and_gpu,cpu_and_ne", "runtime=reference", "latency.repeats=1",
]  # fmt: skip


def run() -> list[Row]:
    """One run of each: a cold cache is cold only once, and the loop alone takes minutes."""
    with tempfile.TemporaryDirectory() as folder:
        ours = ane_sweep(MATRIX, Path(folder))
    loop = sum(timed([sys.executable, "-P", "-c", SCRIPT]) for _ in range(24))
    return [Row("24 cells, cold cache", f"{ours:.1f} s", f"{loop:.1f} s", f"{ours / loop:.2f}", "at most 0.10")]
