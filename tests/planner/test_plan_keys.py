"""What enters the keys of tasks stays byte for byte: caches and resumed runs of earlier versions depend on it."""

import pytest
from planner.test_plan import planned

from ane_sweep.bridge.cell import digest

# words -> digest of (stage, params) of its tasks; a change here loses every user's cached preparation, so say it in a commit
PARAMS = {
    (
        "model=tiny-gpt2",
        "weights=random",
        "runtime=reference",
    ): "e2b10f444d4c6c4216cfa7fd1f758c56ec2accf8f5d35e3fe01a38bdad35cccc",
    (
        "-m",
        "model=gpt2,tiny-t5",
        "weights=random",
        "runtime=reference",
        "chunks=1,2",
        "precision=fp16,p4_g16,mixed4",
    ): "5e108003f0881d461636e068c61f32b46cf3a29bb73a0b5bc06516bef1c860a3",
    (
        "-m",
        "model=tiny-vit",
        "weights=random",
        "runtime=torch_eager",
        "latency.samples=5",
        "model.texts.count=3",
    ): "3260d0477d5c782894b9db6499e3cf2d52f965e245597c4182612e8644307741",
    (
        "-m",
        "model=bert",
        "weights=random",
        "runtime=reference",
        "copies=2",
        "cuts=[0.3],[layer:1]",
        "numerics=ane",
    ): "0d1e83a5fba5687d266c9ecad0021183f9d5d8203befbda64f65cb8185b6299f",
}

THEN = {  # the stages when the digests were written down: one more stage is one more task
    "fetch", "reference", "examples", "adopt", "convert", "calibrate", "compress", "chunk", "pieces", "predict", "compile",
    "place", "load", "score", "evaluate", "latency", "throughput", "evidence",
}  # fmt: skip


def without_host(params: object) -> object:
    """Leave out what this machine says of itself."""
    if isinstance(params, dict):
        hosts = ("text", "host", "xcode", "measured", "threads", "cpu")
        return {name: without_host(value) for name, value in params.items() if name not in hosts}
    return params


@pytest.mark.parametrize("words", PARAMS)
def test_the_parameters_that_enter_keys_are_those_of_earlier_versions(words):
    made = [task for task in planned(*words).tasks.values() if task.stage in THEN]
    tasks = [(task.stage, without_host(task.params), sorted(task.inputs)) for task in made]
    assert digest(tasks) == PARAMS[words]
