"""the same small network in Apple's Core AI runtime for Linux, in an environment of its own ($ANE_SWEEP_OUT/coreai), and here"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from ane_sweep.bench import Row, median, said

ROUNDS = 3
NETWORK = """
import json, sys, time
import torch
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).eval()
x = torch.randn(128, 512)
"""
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
           compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS18).save(sys.argv[1])
print("{}")
"""
)
_OURS = (
    NETWORK
    + """
from pathlib import Path
from ane_sweep.runtimes import _reference
model, taken = _reference.load(Path(sys.argv[1])), []
for _ in range(20):
    start = time.perf_counter()
    made = model.predict({"input": x.numpy()})
    taken.append(time.perf_counter() - start)
assert abs(next(iter(made.values())) - module(x).detach().numpy()).max() < 1e-3
print(json.dumps(taken[5:]))
"""
)


def run() -> list[Row]:
    """Medians of fresh processes in turn, fp32 both. One row that says so where the package cannot be had."""
    try:
        python = environment(Path(os.environ.get("ANE_SWEEP_OUT", "outputs")) / "coreai")
    except RuntimeError as error:
        return [Row("FFN 512-2048-512, 128 rows", "", f"Core AI cannot be had: {error}")]
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        package = f"{folder}/m.mlpackage"
        said([sys.executable, "-c", _CONVERT, package])
        for _ in range(ROUNDS):
            ours.append(median(said([sys.executable, "-c", _OURS, package])))
            theirs.append(median(said([python, "-c", _THEIRS])))
    a, b = median(ours), median(theirs)
    return [
        Row("FFN 512-2048-512, 128 rows", f"{1000 * a:.2f} ms", f"{1000 * b:.2f} ms, Core AI", f"{a / b:.3f}", "0.05")
    ]


def environment(folder: Path) -> str:
    """The Python of an environment that has coreai-torch, made where it is not there. Raises RuntimeError."""
    from importlib.metadata import version

    python = folder.resolve() / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    if subprocess.run(
        [python, "-c", "import coreai.runtime, coreai_torch"], capture_output=True, check=False
    ).returncode:
        wanted = [f"torch=={version('torch').partition('+')[0]}", "coreai-torch"]
        done = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *wanted], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["pip failed"])[-1])
    return str(python)
