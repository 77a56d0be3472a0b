"""The best cell of 40 nets beside the order of their estimates: `python -m tests.proof.order [NAME ...]`, some minutes.

Each family in miniature (random weights, both variants) and each net of tests/grow/strangers.py and of WIDE (fp16 and fp32 compute) is
converted and predicted for an M4, in one piece and cut in two, without a sweep around it. Each record then gets a CPU time
that is MADE UP to speak for the slowest estimate, as a time of the runtime that `runtime=auto` chose: the cell that ranking
names must be the one that the estimate orders first or, where a net's cells have no estimate, the one with the largest
predicted share of the cost on the Neural Engine.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.record import Record, StageOutcome, StageStatus, Status
from ane_sweep.errors import ChunkError
from ane_sweep.results import ranking
from ane_sweep.results.headline import MEASURED
from ane_sweep.worker.stages import chunk, convert, predict
from tests.bench import families
from tests.grow import strangers

CHIP, SEQ_LEN = "m4", 64


@dataclass(frozen=True)
class Found:
    """One net: the cell that ranking names, the first by the estimate, and how sure its order before the next one is.

    is_right  no cell has a better estimate than the named one; several may have the same
    """

    net: str
    named: str
    first: str
    figure: float
    sure: str
    by_cpu: str
    is_right: bool


def nets() -> list[str]:
    return [*(option["name"] for option in families.tiny_options()), *strangers.GROWN, *WIDE]


def _stack(make: Callable[[], Sequence[nn.Module]], count: int) -> nn.Module:
    return nn.Sequential(*(layer for _ in range(count) for layer in make()))


# Nets that an M4's planner would put on the Neural Engine, which leaves the small ones above on the CPU, and their inputs
WIDE: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "wide_mlp": (lambda: _stack(lambda: (nn.Linear(2048, 2048), nn.GELU()), 8), (1, 64, 2048)),
    "wide_convs": (lambda: _stack(lambda: (nn.Conv2d(128, 128, 3, padding=1), nn.ReLU()), 12), (1, 128, 56, 56)),
    "wide_mixed": (
        lambda: _stack(lambda: (nn.Conv2d(256, 256, 1), nn.Conv2d(256, 256, 3, padding=1, groups=256)), 8),
        (1, 256, 28, 28),
    ),
    "wide_encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(512, 8, batch_first=True), 4, enable_nested_tensor=False
        ),
        (1, 128, 512),
    ),
}


def find(net: str) -> Found:
    """Convert a net's cells, give them opposite CPU times, and rank them."""
    with tempfile.TemporaryDirectory() as folder:
        records = [record for cell in _cells(net, Path(folder)) for record in cell]
    estimates = [record.value("latency_ms", "estimated", CHIP) for record in records]
    shares = [record.value("cost_share_ane", "predicted", CHIP) or 0.0 for record in records]
    known = [ms for ms in estimates if ms is not None]
    gains = [-ms if ms is not None else float("-inf") for ms in estimates] if known else shares
    for record, gain in zip(records, gains, strict=True):
        opposed = 1.0 + sum(other < gain for other in gains)
        record.metrics += [Metric(MEASURED, opposed, "ms"), Metric("latency_iqr_ms", 0.0, "ms")]
    (group,) = [cells for cells in ranking.group_by_work(records) if gains.index(max(gains)) in cells]
    speed = ranking.SPEEDS[0] if known else ranking.SPEEDS[1]
    named, _ = ranking.choose_best(records, speed, {}, group)
    assert named is not None
    names = [" ".join(str(record.cell[axis]) for axis in ("variant", "compute", "chunks")) for record in records]
    others = sorted((n for n in group if n != named), key=lambda n: -gains[n])
    sure = ranking.how_sure(records[named], records[others[0]]) if known and others else "-"
    first, by_cpu = names[gains.index(max(gains))], names[gains.index(min(gains))]
    return Found(net, names[named], first, abs(max(gains)), sure, by_cpu, gains[named] == max(gains))


def _cells(net: str, folder: Path) -> Iterator[list[Record]]:
    option = next((one for one in families.tiny_options() if one["name"] == net), None)
    pairs = [("original", "fp16"), ("split_einsum", "fp16")] if option else [("original", "fp16"), ("original", "fp32")]
    for variant, compute in pairs:
        whole = folder / f"{variant}-{compute}"
        whole.mkdir()
        if option:
            _convert_family(option, variant, compute, whole)
        else:
            _convert_module(net, compute, whole)
        yield [_record(net, variant, compute, 1, whole), *_cut(net, variant, compute, whole)]


def _convert_family(option: dict[str, object], variant: str, compute: str, out: Path) -> None:
    model = {key: option[key] for key in ("family", "task", "arch")}
    weights = {"kind": "random", "digest": "random:0", "seed": 0}
    task = {"model": model, "weights": weights, "seq_len": SEQ_LEN, "variant": variant, "target": "iOS18"}
    convert.run({**task, "compute": compute, "options": {}}, {}, out)


def _convert_module(name: str, compute: str, out: Path) -> None:
    import coremltools as ct

    make, shape = WIDE.get(name) or (lambda: strangers.made(name), strangers.shape(name))
    example = torch.zeros(shape)
    torch.backends.mha.set_fastpath_enabled(False)  # its op of a whole layer has no conversion
    with torch.no_grad():
        traced = torch.jit.trace(make().eval(), example, check_trace=False)
    ct.convert(
        traced, inputs=[ct.TensorType("x", example.shape)], skip_model_load=True, package_dir=str(out / "model.mlpackage"),
        minimum_deployment_target=ct.target.iOS18, compute_precision=getattr(ct.precision, {"fp16": "FLOAT16", "fp32": "FLOAT32"}[compute]),
    )  # fmt: skip


def _cut(net: str, variant: str, compute: str, whole: Path) -> list[Record]:
    """Return the record of the same program in two chunks; none if it has no place to cut."""
    out = whole / "cut"
    out.mkdir()
    try:
        chunk.run({"count": 2, "by": "bytes", "own": "none", "pipeline": "manual"}, {"program": whole}, out)
    except ChunkError:
        return []
    return [_record(net, variant, compute, 2, out)]


def _record(net: str, variant: str, compute: str, chunks: int, program: Path) -> Record:
    out = program / "predicted"
    out.mkdir()
    made = predict.run({"chips": [CHIP], "compute_units": "all"}, {"program": program}, out)
    size = float(sum(path.stat().st_size for path in program.rglob("*.mlpackage/**/*") if path.is_file()))
    cell = {
        "model": net,
        "variant": variant,
        "compute": compute,
        "precision": compute,
        "chunks": chunks,
        "runtime": "auto",
    }
    record = Record("proof", f"{net}-{variant}-{compute}-{chunks}".replace(".", "-"), cell, Status.OK)
    record.stages = [StageOutcome("reference", StageStatus.OK, key=net)]
    record.realised |= {"runtime": "reference", "chunks": chunks}
    record.metrics = [*made.metrics, Metric("psnr_db", 60.0), Metric("package_bytes", size)]
    record.placement = made.placement
    return record


def main(words: Sequence[str]) -> int:
    wrong = 0
    for net in words or nets():
        found = find(net)
        wrong += not found.is_right
        print(
            f"{'right' if found.is_right else 'WRONG'}  {net}: {found.named} ({found.figure:.3g}, {found.sure}); first by the estimate "
            f"{found.first}; by the CPU times that were made up {found.by_cpu}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
