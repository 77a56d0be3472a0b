"""MiniLM, GPT-2, ViT and ResNet50 in fp32: reference runtime and torch eager in one process, call by call in turns (minutes)"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import Row, runtime, said

CASES = (("minilm", 128), ("gpt2", 512), ("vit-base", 128))
CALLS, BAR = 20, 0.85
Call = Callable[[], object]


def run() -> list[Row]:
    """The fastest of 20 calls each; CPU time with one thread, wall time with all that torch takes here."""
    import torch

    rows, most = [], torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        pairs = [(f"{model} {seq_len}", shipped(model, seq_len, Path(folder))) for model, seq_len in CASES]
        for name, pair in [*pairs, ("ResNet50 224x224", resnet(Path(folder)))]:
            for threads in sorted({1, most}):
                torch.set_num_threads(threads)
                ours, theirs = race(*pair, clock=time.thread_time if threads == 1 else time.perf_counter)
                what = f"{name} fp32, {threads} thread{'s' * (threads > 1)}"
                taken = f"{1000 * ours:.1f} ms", f"{1000 * theirs:.1f} ms, torch eager fp32"
                rows.append(Row(what, *taken, f"{ours / theirs:.2f}", f"at most {BAR}"))
    return rows


def race(ours: Call, theirs: Call, clock: Callable[[], float], calls: int = CALLS) -> tuple[float, float]:
    """The fastest call of each, taken in turns after two that are not timed."""
    best = [float("inf")] * 2
    for turn in range(calls + 2):
        for side, call in enumerate((ours, theirs)):
            start = clock()
            call()
            best[side] = min(best[side], clock() - start) if turn > 1 else best[side]
    return best[0], best[1]


def shipped(model: str, seq_len: int, folder: Path) -> tuple[Call, Call]:
    """Both sides of a model option, with random weights."""
    from ane_sweep.worker import runtimes
    from tests.bench import _side

    params = runtime.parameters(model, seq_len)
    runtime.convert({**params, "compute": "fp32", "target": "iOS18"}, folder / model)
    feeds = _side.inputs_for(params)
    ours = runtimes.get("reference").load(params, {"program": folder / model})
    theirs = runtimes.get("torch_eager").load(params, {})
    return (lambda: ours.predict(feeds)), (lambda: theirs.predict(feeds))


def resnet(folder: Path) -> tuple[Call, Call]:
    """Both sides of transformers' ResNet50, with random weights."""
    import numpy as np
    import torch

    from ane_sweep import reference

    said(
        [
            sys.executable,
            "-P",
            "-c",
            f"from tests.bench import turns; turns.convert_resnet({str(folder)!r}); print('{{}}')",
        ]
    )
    model, module = reference.load(folder / "resnet.mlpackage"), resnet_module()
    image = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)

    def eager() -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(image), return_dict=False)[0].numpy()

    return (lambda: model.predict({"x": image})), eager


def resnet_module() -> Any:
    """ResNet50 with seeded weights."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(0)
    module: Any = ResNetForImageClassification(ResNetConfig.from_dict({"num_labels": 1000}))
    return module.eval()


def convert_resnet(folder: str) -> None:
    """Leave resnet.mlpackage, fp32, in a folder."""
    import coremltools as ct
    import torch

    x, module = torch.zeros(1, 3, 224, 224), resnet_module()
    module.config.return_dict = False
    ct.convert(
        torch.jit.trace(module, x),  # type: ignore[no-untyped-call]
        inputs=[ct.TensorType("x", shape=x.shape)], skip_model_load=True,
        compute_precision=ct.precision.FLOAT32, minimum_deployment_target=ct.target.iOS18,
    ).save(f"{folder}/resnet.mlpackage")  # fmt: skip
