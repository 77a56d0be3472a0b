"""the reference runtime against torch eager fp32: MiniLM at 128 tokens, GPT-2 at 512, in fp32 and fp16 (some minutes)"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from ane_sweep.planner import options
from tests.bench import Row, said

CASES = (("minilm", 128), ("gpt2", 512))
ROUNDS, CALLS = 5, 10
BAR = 1.2


def run() -> list[Row]:
    """Every side is a fresh process, all sides in turn, `ROUNDS` times over; random weights, the module as it is on the hub."""
    with tempfile.TemporaryDirectory() as folder:
        return [row for model, seq_len in CASES for row in compare(model, seq_len, Path(folder))]


def compare(model: str, seq_len: int, folder: Path, rounds: int = ROUNDS, calls: int = CALLS) -> list[Row]:
    """Time and peak memory of both modes of one model, each with torch's."""
    params = parameters(model, seq_len)
    sides: dict[str, dict[str, Any]] = {"torch": {"side": "torch_eager", "params": params, "calls": calls}}
    for compute in ("fp32", "fp16"):
        program = folder / f"{model}-{compute}"
        convert({**params, "compute": compute, "target": "iOS18"}, program)
        sides[compute] = {"side": "reference", "params": params, "program": str(program), "calls": calls}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, asked in sides.items():
            found[name].append(said([sys.executable, "-P", "-m", "tests.bench._side", json.dumps(asked)]))
    return [row for compute in ("fp32", "fp16") for row in _rows(f"{model} {seq_len} {compute}", found, compute)]


def parameters(model: str, seq_len: int) -> dict[str, Any]:
    """What the stages need to build a model option as it is on the hub, with random weights."""
    option = options.shipped("model", model)
    return {
        "model": {key: option[key] for key in ("family", "task", "arch")},
        "weights": {"kind": "random", "digest": "random:0", "seed": 0},
        "seq_len": seq_len,
        "variant": "original",
    }


def convert(params: dict[str, Any], folder: Path) -> None:
    """The package of these parameters, made in a process of its own: converting leaves gigabytes behind."""
    folder.mkdir()
    code = (
        "import json, sys; from pathlib import Path; from ane_sweep.worker.stages import convert; "
        "convert.run(json.loads(sys.argv[1]), {}, Path(sys.argv[2])); print('{}')"
    )
    said([sys.executable, "-P", "-c", code, json.dumps(params), str(folder)])


def _rows(what: str, found: dict[str, list[dict[str, Any]]], compute: str) -> list[Row]:
    ours, theirs = ([median(entry["steady_s"]) for entry in found[name]] for name in (compute, "torch"))
    peaks, their_peaks = ([entry["peak_bytes"] for entry in found[name]] for name in (compute, "torch"))
    held = compute == "fp32" or found[compute][0]["fast_half"]
    bar = f"at most {BAR}" if held else "none: this CPU has no avx512_fp16"
    return [
        Row(
            f"{what}, one prediction",
            f"{1000 * median(ours):.1f} ms",
            f"{1000 * median(theirs):.1f} ms, torch eager fp32",
            f"{median(ours) / median(theirs):.2f}",
            bar,
        ),
        Row(
            f"{what}, peak of the process",
            f"{median(peaks) / 2**20:.0f} MiB",
            f"{median(their_peaks) / 2**20:.0f} MiB",
            f"{median(peaks) / median(their_peaks):.2f}",
            f"at most {BAR}",
        ),
    ]
