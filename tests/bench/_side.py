"""One side of a comparison, in a process of its own: load, predict, say how it went as one line of JSON.

python -m tests.bench._side '{"side": "reference" | "torch_eager", "params": {...}, "program": PATH, "calls": 10}'
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.protocol import peak_bytes
from ane_sweep.worker import models, runtimes
from ane_sweep.worker.timing.sampling import measure
from tests.bench import families


def inputs_for(params: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Seeded ids and masks of ones, or what else the inputs of the model that `params` describes are."""
    import numpy as np

    model = params["model"]
    ports = models.get(model["family"]).ports(model, params["seq_len"])
    if KINDS[model["task"]].length == "architecture":
        return {port.name: families.fed(port, model, params["seq_len"], seed).numpy() for port in ports.inputs}
    ids = np.random.default_rng(seed)
    return {
        port.name: ids.integers(2, model["arch"]["vocab_size"], port.shape).astype(np.int32)
        if port.dtype == "int32"
        else np.ones(port.shape, np.float32)
        for port in ports.inputs
    }


def main(asked: dict[str, Any]) -> dict[str, Any]:
    """Seconds from start to the first output, of the first call, of each steady call; peak resident bytes."""
    start = time.perf_counter()
    params = asked["params"]
    feeds = inputs_for(params)
    folders = {"program": Path(asked["program"])} if "program" in asked else {}
    loaded = runtimes.get(asked["side"]).load(params, folders)
    load_s = time.perf_counter() - start
    taken = measure(
        lambda: loaded.predict(feeds), clock=time.perf_counter, warmup=2, samples=asked["calls"], max_seconds=120
    )
    return {
        "load_s": load_s,
        "first_s": taken.first_s,
        "steady_s": taken.steady_s,
        "peak_bytes": peak_bytes(),
        "fast_half": _fast_half(),
        **{key: loaded.realised[key] for key in ("numerics", "threads")},
    }


def _fast_half() -> bool:
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
