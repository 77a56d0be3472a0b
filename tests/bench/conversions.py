"""whole conversions, from start to package on disk, beside the plain script (load, trace, ct.convert, save); random weights

`ANE_SWEEP_MODELS=gpt2,ladder-tiny` converts other options, `ANE_SWEEP_VARIANTS=original` one variant, `ANE_SWEEP_RUNS=1` once
instead of three times (the median is told), `ANE_SWEEP_SEQ_LEN=128` for that many tokens. `ANE_SWEEP_PLAIN=0` leaves the plain
script out. `--keep` takes the place of the rows of the same name, so that it may be run in pieces; `--phases` says where the
time goes.
"""

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ane_sweep.bridge import families, protocol
from ane_sweep.bridge.protocol import peak_bytes
from ane_sweep.planner import options
from tests.bench import Row, _kept

MODELS = "gpt2,gpt2-xl,ladder-base,ladder-medium,ladder-large,ladder-xl,sd-1.4-unet,pythia-6.9b"
SEQ_LEN, TARGET = int(os.environ.get("ANE_SWEEP_SEQ_LEN", "512")), "iOS18"
WITHOUT_PLAIN = ("pythia-6.9b",)  # its weights in fp32 and in fp16 are more than 24 GiB
BARS = {"gpt2-xl": "at most 0.25, 4 GiB", "ladder-xl": "under 60 s", "pythia-6.9b": "under 8 GiB"}


def run() -> list[Row]:
    """One row a model and variant. Raises CalledProcessError when a conversion fails."""
    return [_row(name, variant) for name, variant in chosen(MODELS)]


def keep(rows: list[Row]) -> Path:
    return _kept.replace("conversions", rows)


def chosen(models: str) -> list[tuple[str, str]]:
    """(option, variant) as the environment asks, or of `models`."""
    names = os.environ.get("ANE_SWEEP_MODELS", models).split(",")
    wanted = os.environ.get("ANE_SWEEP_VARIANTS", "").split(",")
    return [
        (name, variant)
        for name in names
        for variant in families.variants(_option(name)["family"])
        if wanted == [""] or variant in wanted
    ]


def _row(name: str, variant: str) -> Row:
    plain = wanted = name not in WITHOUT_PLAIN and os.environ.get("ANE_SWEEP_PLAIN") != "0"
    runs = int(os.environ.get("ANE_SWEEP_RUNS", "3"))
    ours, theirs = [], []
    for _ in range(runs):  # in turn, so that both see the same
        ours.append(_process(__name__, name, variant))
        try:
            theirs += [_process("tests.bench._plain", name, variant)] if plain else []
        except subprocess.CalledProcessError as error:
            if error.returncode != -signal.SIGKILL:
                raise
            plain = False  # it will not have more memory the next time
    own, other = _median(ours), _median(theirs) if plain else None
    ratio = f"{own['wall_s'] / other['wall_s']:.2f} ({own['cpu_s'] / other['cpu_s']:.2f} of CPU)" if other else ""
    tokens = "" if SEQ_LEN == 512 else f", {SEQ_LEN} tokens"
    what = f"{name} {variant}{tokens}" + (f" (median of {runs})" if runs > 1 else " (one run)")
    blocks = f", {ours[0]['ops']:.0f} ops, {own['package_bytes'] / 1e9:.2f} GB"
    told = _told(other) if other else "" if wanted is plain else "killed: this host's memory is not enough"
    return Row(what, _told(own) + blocks, told, ratio, BARS.get(name, ""))


def _told(took: dict[str, float]) -> str:
    return f"{took['wall_s']:.1f} s, {took['cpu_s']:.1f} s of CPU, peak {took['peak_bytes'] / 2**30:.2f} GiB"


def _median(taken: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(one[key] for one in taken) for key in taken[0]}


def _process(side: str, name: str, variant: str) -> dict[str, float]:
    began, used = time.perf_counter(), _children_s()
    with tempfile.TemporaryDirectory() as folder:
        # Its own TMPDIR: coremltools leaves files behind.
        command = [sys.executable, "-P", "-m", side, name, variant, folder]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env={**protocol.python_environment(), "TMPDIR": folder}
        )
        seconds, cpu = time.perf_counter() - began, _children_s() - used
    return {**json.loads(done.stdout.splitlines()[-1]), "wall_s": seconds, "cpu_s": cpu}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _option(name: str) -> dict[str, Any]:

    found: dict[str, Any] = options.shipped("model", name)
    return found


def asked(name: str, variant: str) -> dict[str, Any]:
    """A task's parameters."""
    option = _option(name)
    return {
        "model": {key: option[key] for key in ("family", "task", "arch")}, "variant": variant,
        "seq_len": option["max_seq_len"] if option["family"] == "unet" else min(SEQ_LEN, option["max_seq_len"]),
        "weights": {"kind": "random", "seed": 0}, "target": TARGET, "compute": "fp16",
    }  # fmt: skip


def convert_one(name: str, variant: str, folder: str) -> dict[str, int]:
    """Convert one option in this process; what it took."""
    from ane_sweep.worker.stages import convert

    out = Path(folder, "out")
    out.mkdir()
    made = convert.run(asked(name, variant), {}, out)
    size = next(metric.value for metric in made.metrics if metric.name == "package_bytes")
    return {"ops": made.facts["ops"], "package_bytes": size, "peak_bytes": peak_bytes()}


if __name__ == "__main__":
    print(json.dumps(convert_one(*sys.argv[1:])))
