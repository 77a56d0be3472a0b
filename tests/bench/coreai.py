"""the same small networks in Apple's Core AI runtime for Linux, in an environment of its own ($ANE_SWEEP_OUT/coreai), and here"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from statistics import median

from tests.bench import Row, said

ROUNDS = 3
SIZES = ((128, 512, 2048), (256, 768, 3072))  # rows, width, inner width
BAR = 0.05
NETWORK = """
import json, sys, time
import torch
torch.manual_seed(0)
rows, width, inner = map(int, sys.argv[1:4])
module = torch.nn.Sequential(torch.nn.Linear(width, inner), torch.nn.GELU(), torch.nn.Linear(inner, width)).eval()
x = torch.randn(rows, width)
"""
_TORCH = (
    NETWORK
    + """
taken = []
with torch.inference_mode():
    for _ in range(20):
        start = time.perf_counter()
        module(x)
        taken.append(time.perf_counter() - start)
print(json.dumps(taken[5:]))
"""
)
_THEIRS = (
    NETWORK
    + """
import asyncio, tempfile
from pathlib import Path
from coreai import runtime
from coreai_torch import TorchConverter, get_decomp_table
exported = torch.export.export(module, (x,)).run_decompositions(get_decomp_table())
program = TorchConverter().add_exported_program(exported).to_coreai()
async def main():
    with tempfile.TemporaryDirectory() as folder:
        asset = program.save_asset(Path(folder) / "m.aimodel")
        async with asset.executable() as model:
            function, taken = model.load_function("main"), []
            for _ in range(20):
                start = time.perf_counter()
                made = await function({"input": runtime.NDArray(x.numpy())})
                taken.append(time.perf_counter() - start)
            (value,) = made.values()
            assert abs(value.numpy() - module(x).detach().numpy()).max() < 1e-3
            print(json.dumps(taken[5:]))
asyncio.run(main())
"""
)
_CONVERT = (
    NETWORK
    + """
import coremltools as ct
traced = torch.jit.trace(module, x)
ct.convert(traced, inputs=[ct.TensorType(name="input", shape=x.shape)], convert_to="mlprogram", skip_model_load=True,
           compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS18).save(sys.argv[4])
print("{}")
"""
)
_OURS = (
    NETWORK
    + """
from pathlib import Path
from ane_sweep import reference
model, taken = reference.load(Path(sys.argv[4])), []
for _ in range(20):
    start = time.perf_counter()
    made = model.predict({"input": x.numpy()})
    taken.append(time.perf_counter() - start)
assert abs(next(iter(made.values())) - module(x).detach().numpy()).max() < 1e-3
print(json.dumps(taken[5:]))
"""
)


def run() -> list[Row]:
    """Medians of fresh processes in turn, all in fp32. One row that says so where the package cannot be had."""
    try:
        python = environment(Path(os.environ.get("ANE_SWEEP_OUT", "outputs")) / "coreai")
    except RuntimeError as error:
        return [Row("feed-forward block", "", f"Core AI cannot be had: {error}")]
    return [compare(python, *size) for size in SIZES]


def compare(python: str, rows: int, width: int, inner: int) -> Row:
    """One feed-forward block: ours beside Core AI's, and torch eager's in words."""
    size = [str(rows), str(width), str(inner)]
    found: dict[str, list[float]] = {"ours": [], "Core AI": [], "torch": []}
    with tempfile.TemporaryDirectory() as folder:
        package = f"{folder}/m.mlpackage"
        said([sys.executable, "-P", "-c", _CONVERT, *size, package])
        for _ in range(ROUNDS):
            found["ours"].append(median(said([sys.executable, "-P", "-c", _OURS, *size, package])))
            found["Core AI"].append(median(said([python, "-P", "-c", _THEIRS, *size])))
            found["torch"].append(median(said([sys.executable, "-P", "-c", _TORCH, *size])))
    ours, theirs, eager = (1000 * median(times) for times in found.values())
    return Row(
        f"FFN {width}-{inner}-{width}, {rows} rows",
        f"{ours:.2f} ms",
        f"{theirs:.1f} ms, Core AI (torch eager {eager:.2f} ms)",
        f"{ours / theirs:.3f}",
        f"at most {BAR}",
    )


def environment(folder: Path) -> str:
    """The Python of an environment that has coreai-torch, made where it is not there. Raises RuntimeError."""
    from importlib.metadata import version

    python = folder.resolve() / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run(
        [python, "-P", "-c", "import coreai.runtime, coreai_torch"], capture_output=True, check=False
    ).returncode:
        wanted = [f"torch=={version('torch').partition('+')[0]}", "coreai-torch"]
        done = subprocess.run(
            [python, "-P", "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["pip failed"])[-1])
    return str(python)
