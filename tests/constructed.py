"""Records of the shape that sweeps leave, with made-up figures: CONSTRUCTED, for the report's and the tracker's tests."""

import itertools
import random

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.record import Record, StageOutcome, StageStatus, Status, Weights
from ane_sweep.placement.types import Kind, Ops, Placement, Reason, Shares

STAMP = "constructed-20260102-030405"
MODELS = (
    "gpt2",
    "gpt2-medium",
    "distilbert",
    "pythia-160m",
    "bert",
    "minilm",
    "t5-small",
    "opt-125m",
    "bloom-560m",
    "phi-1.5",
)
AXES = {
    "model": MODELS,
    "variant": ("original", "split_einsum"),
    "precision": ("fp16", "fp32"),
    "chunks": (1, 2, 4),
    "seq_len": (32, 64, 128, 256, 512),
}
BAD = {
    "failed": ("convert", "convert: the converter has no rule for op 'diff'"),
    "crashed": ("convert", "convert ended with SIGSEGV"),
    "timeout": ("latency", "latency ran past its 1800 s"),
    "out_of_memory": ("score", "score: the kernel ended it for want of memory"),
    "refused": ("plan", "chunks=4 is more than it can be cut into"),
}


def records(count: int, *, seed: int = 0, bad: bool = True, stamp: str = STAMP, **changes: str) -> list[Record]:
    """`count` cells of a matrix of up to 600; the models are as many as are needed. `changes` are set in every request."""
    drawn = random.Random(seed)
    models = MODELS[: max(1, min(len(MODELS), -(-count // 30)))]
    cells = itertools.product(models, *(AXES[axis] for axis in list(AXES)[1:]))
    chosen = list(cells)
    step = max(1, len(chosen) // count)
    chosen = [chosen[(n * step) % len(chosen)] for n in range(count)] if step > 1 else chosen[:count]
    return [
        _record(dict(zip(AXES, cell)), n, drawn, bad and count > 10, stamp, changes) for n, cell in enumerate(chosen)
    ]


def _record(cell: dict, n: int, drawn: random.Random, bad: bool, stamp: str, changes: dict) -> Record:
    status = next((name for k, name in enumerate(BAD) if bad and n % 41 == 7 * k + 5), "ok")
    stage, reason = BAD.get(status, (None, None))
    size = 4e7 * (1 + MODELS.index(cell["model"])) * (2 if cell["precision"] == "fp32" else 1)
    median = (
        size
        / 4e7
        * (0.6 if cell["variant"] == "split_einsum" else 1.0)
        * cell["seq_len"]
        / 64
        * drawn.uniform(0.9, 1.1)
    )
    request = {
        "family": cell["model"].split("-")[0],
        "size": "x",
        "compute_units": "all",
        "weights": "pretrained",
        "head": "all",
    }
    ran = status == "ok"
    return Record(
        sweep=stamp,
        cell_key=f"{n:064x}",
        cell={**cell, **request, **changes},
        status=Status(status),
        reason=reason,
        stages=_stages(status, stage, reason, f"{cell['model']}-{cell['seq_len']}-".ljust(64, "k")),
        realised={"runtime": "coreml", "compute_units": "all", "texts": "real", "latency_task": f"t{n}"} if ran else {},
        metrics=_metrics(median, size, cell, drawn) if ran else [],
        placement=_placement(cell, n) if ran else [],
        weights=Weights("pretrained", "constructed", "d" * 8),
        host={"system": "Darwin", "chip": "constructed", "os_version": "15.1", "cores": {"physical": 8}},
        toolchain={"torch": "2.13.0", "coremltools": "9.0"},
    )


def _stages(status: str, bad: str | None, reason: str | None, reference: str) -> list[StageOutcome]:
    if status == "refused":
        return []
    names = ("reference", "convert", "predict", "latency", "score")
    reached = names[: names.index(bad) + 1] if bad else names
    return [
        StageOutcome(
            s,
            StageStatus(status if s == bad else "ok"),
            reason if s == bad else None,
            seconds=1.5,
            key=(reference if s == "reference" else "k" * 64).replace(".", "_"),
        )
        for s in reached
    ]


def _metrics(median: float, size: float, cell: dict, drawn: random.Random) -> list[Metric]:
    psnr = (72.0 if cell["precision"] == "fp16" else 141.0) + drawn.gauss(0, 3)
    figures = {
        "convert_s": 5.0, "package_bytes": size, "psnr_db": psnr, "load_cold_ms": 900 * median ** 0.5,
        "load_cached_ms": 60 * median ** 0.5, "latency_first_ms": 9 * median, "latency_early_ms": 1.3 * median,
        "latency_median_ms": median, "latency_iqr_ms": 0.04 * median, "latency_after_idle_ms": 4 * median,
    }  # fmt: skip
    found = [Metric(name, value, source="constructed") for name, value in figures.items()]
    band = {"latency_low_ms": 0.4 * median, "latency_ms": 0.7 * median, "latency_high_ms": 2.0 * median}
    return [*found, *(Metric(name, ms, "ms", "estimated", "m1: constructed", "m1") for name, ms in band.items())]


def placement(kind: Kind, chip: str, ops: Ops, *, segments: int = 3, transitions: int = 2, **more) -> Placement:
    """A placement whose costs are as its ops."""
    shares = Shares(ops.share("cpu"), ops.share("gpu"), ops.share("ane"))
    return Placement(kind, chip, more.pop("compute_units", "all"), ops, shares, segments, transitions, **more)


def _placement(cell: dict, n: int) -> list[Placement]:
    half = cell["precision"] == "fp16"
    ane = (600 if cell["variant"] == "split_einsum" else 380 - 90 * (cell["chunks"] > 2)) if half else 0
    found = []
    for kind, chip, lost in (("predicted", "m1", 4), ("planned", "m1", 30)):
        ops = Ops(cpu=620 - max(0, ane - lost), gpu=0, ane=max(0, ane - lost), total=620)
        why = Reason(
            rule="fp32", reason="reads fp32: the ANE computes in fp16", ops=ops.cpu, op_types={"linear": ops.cpu},
            cost_share=ops.share("cpu"), names=["a"], source="constructed", confidence="high",
        )  # fmt: skip
        said = {"reasons": [why], "advice": [f"convert with precision=fp16 ({ops.cpu} ops: linear)"]} if ops.cpu else {}
        found.append(placement(kind, chip, ops, segments=3 + n % 4, **said))
    return found
