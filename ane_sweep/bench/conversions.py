"""gpt2-xl and pythia-1.4b (random weights), both variants: wall time and peak memory of converting, a process each

`ANE_SWEEP_MODELS=gpt2,pythia-160m` converts other options instead.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ane_sweep.bench import Row
from ane_sweep.bridge import protocol
from ane_sweep.bridge.protocol import peak_bytes
from ane_sweep.planner.paths import conf_dir

MODELS = "gpt2-xl,pythia-1.4b"
SEQ_LEN, TARGET = 512, "iOS18"
BAR_GIB = 24


def run() -> list[Row]:
    """One row a model and variant. Raises CalledProcessError when a conversion fails."""
    names = os.environ.get("ANE_SWEEP_MODELS", MODELS).split(",")
    return [_row(name, variant) for name in names for variant in ("original", "split_einsum")]


def _row(name: str, variant: str) -> Row:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        # Its own TMPDIR: coremltools leaves files behind.
        command = [sys.executable, "-P", "-m", __name__, name, variant, folder]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**protocol.python_environment(), "TMPDIR": folder}
        )
    seconds = time.perf_counter() - began
    said = json.loads(done.stdout.splitlines()[-1])
    gib = said["peak_bytes"] / (1 << 30)
    figures = f"{seconds:.0f} s, peak {gib:.1f} GiB ({said['ops']} ops, {said['package_bytes'] / 1e9:.2f} GB)"
    return Row(f"{name} {variant}", figures, bar=f"under {BAR_GIB} GiB")


def convert_one(name: str, variant: str, folder: str) -> dict[str, int]:
    """Convert one option in this process; what it took."""
    import yaml

    from ane_sweep.worker.stages import convert

    option = yaml.safe_load((conf_dir() / "model" / f"{name}.yaml").read_text(encoding="utf-8"))
    params = {
        "model": {key: option[key] for key in ("family", "task", "arch")}, "seq_len": SEQ_LEN, "variant": variant,
        "weights": {"kind": "random", "seed": 0}, "target": TARGET, "compute": "fp16",
    }  # fmt: skip
    out = Path(folder, "out")
    out.mkdir()
    made = convert.run(params, {}, out)
    size = next(metric.value for metric in made.metrics if metric.name == "package_bytes")
    return {"ops": made.facts["ops"], "package_bytes": size, "peak_bytes": peak_bytes()}


if __name__ == "__main__":
    print(json.dumps(convert_one(*sys.argv[1:])))
