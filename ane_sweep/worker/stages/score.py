"""score: compares a runtime's outputs with those of fp32 torch, on the same inputs.

params  model, runtime, and what that runtime needs (compute_units; weights, variant, seq_len ...)
inputs  program (or checkpoint), reference
leaves  outputs.npz: every graph output stacked, (N, 1, ...) float32

Padding counts for nothing: only positions that hold a token of the text are compared. kl and top1_agreement are those
of the output `logits`, psnr_db and cosine of all outputs together, psnr_worst_db of the worst of several; an encoder's
positions are averaged into one vector an input, or its one vector is taken, and rank_agreement compares the order of all
pairs by similarity.

Of a model with unknown outputs each is scored by itself, at every shape that the reference has. An output of large numbers
hides the others in psnr_db, so psnr_worst_db is that of the worst output if there are several. Of integers (indices,
classes) the share of equal values is counted.
"""

from pathlib import Path

import numpy as np

from ane_sweep.bridge import metrics
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.stats import psnr
from ane_sweep.worker import params, runtimes
from ane_sweep.worker.feeds import agreement
from ane_sweep.worker.feeds.arrays import Inputs, StackWriter, list_further_shapes, map_arrays, pad_rows, to_array
from ane_sweep.worker.params import Model
from ane_sweep.worker.runtimes._runtime import Arrays
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=110, many="scorings", timeout_s=3600, base_gib=0.28, per_byte=1.2, base_s=0.2, per_gb_s=0.3,
    leaves="outputs", runs_program=True, outputs=6.6,
    warm=("ane_sweep.worker.feeds.arrays",),
)  # fmt: skip


class Params(params.RuntimeParams, frozen=True, kw_only=True):
    """Parameters of this stage; the runtime reads more of the same JSON."""

    model: Model


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Score the outputs. Raises StageError if one is missing, of another shape or not finite.

    realised  what the runtime reports; `outputs` if there are several or they are unknown; `shapes` if there are several
    """
    model = Params.read(params).model
    runtime = runtimes.load(params, inputs)
    kind, reference = KINDS[model.task], inputs["reference"]
    is_unknown = kind.length == "caller"
    check = _check_padded_output if is_unknown and model.arch.get("form") == "pipeline" else check_output
    shapes = ["", *list_further_shapes(reference)]
    total = _Scores(kind.leaves == "vectors")
    parts = {shape or "default": _Scores(total.embeds) if len(shapes) > 1 else total for shape in shapes}
    for shape, part in zip(shapes, parts.values()):
        at = f"@{shape}" if shape else ""
        feeds, expected = Inputs(reference, f"inputs{at}.npz"), map_arrays(reference / f"outputs{at}.npz")
        with StackWriter(out / f"outputs{at}.npz", count=len(feeds)) as stack:
            for index, got in enumerate(runtime.predict_each(feeds)):
                got = {name: check(name, got, array[index].shape, index) for name, array in expected.items()}
                stack.put(index, got)
                for name, array in expected.items():
                    for scores in {total, part}:
                        scores.add(name, array[index], got[name], None if is_unknown else feeds.valid[index])
    realised = {**runtime.realised}
    if is_unknown or len(expected) > 1:
        realised["outputs"] = total.by_name()
    if len(shapes) > 1:
        realised["shapes"] = {shape: part.figures() for shape, part in parts.items()}
    return StageResult(metrics=total.metrics(), realised=realised)


def check_output(name: str, got: Arrays, shape: tuple[int, ...], index: int) -> np.ndarray:
    """Return an output as float32. Raises StageError if it is missing, has another shape or is not finite."""
    if name not in got:
        raise StageError(f"the runtime gave no output {name!r}; it gave {', '.join(sorted(got)) or 'nothing'}")
    value = to_array(got[name])
    if value is None:
        raise StageError(f"output {name!r} of input {index} is no number")
    array = value.astype(np.float32)
    if array.shape != shape:
        raise StageError(f"output {name!r} of input {index} has shape {array.shape}, the reference {shape}")
    if not np.isfinite(array).all():
        bad = int(array.size - np.isfinite(array).sum())
        raise StageError(
            f"output {name!r} of input {index} holds {bad} values that are NaN or infinite (of {array.size}); "
            "an fp16 program overflows there, which precision=fp32 would show; an fp32 one gives what the model itself gives"
        )
    return array


def _check_padded_output(name: str, got: Arrays, shape: tuple[int, ...], index: int) -> np.ndarray:
    """Check an output of a pipeline, whose last model may return fewer rows than the reference has."""
    value = to_array(got[name]) if name in got else None
    rows = shape[0] if shape else 0
    return check_output(name, got if value is None else {**got, name: pad_rows(value, rows)}, shape, index)


class _Scores:
    """Running figures of one model, updated input by input."""

    def __init__(self, embeds: bool):
        self.embeds, self.close = embeds, psnr.Outputs()
        self.kl_sum, self.kl_count = 0.0, 0
        self.same: list[bool] = []
        self.equal: dict[str, list[int]] = {}
        self.pooled: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])

    def add(self, name: str, reference: np.ndarray, candidate: np.ndarray, valid: np.ndarray | None) -> None:
        """Add an output: (1, S, C) per position, (1, 1, C) of the last one, or (1, C) per input; `valid` (S,) bool.

        Without `valid` it has any shape, and all of it counts.
        """
        if reference.dtype.kind != "f":
            same = self.equal.setdefault(name, [0, 0])
            same[0] += int((reference == candidate).sum())
            same[1] += reference.size
            return
        if valid is not None:
            rows: slice | np.ndarray = slice(None)
            if reference.ndim == 3:
                rows = valid if reference.shape[1] == len(valid) else rows
                reference, candidate = reference[0], candidate[0]
            if self.embeds:
                self.pooled[0].append(agreement.mean_pool(reference, rows))
                self.pooled[1].append(agreement.mean_pool(candidate, rows))
            reference, candidate = reference[rows], candidate[rows]
        self.close.add(name, reference=reference, candidate=candidate)
        if name == "logits" and reference.ndim:
            reference, candidate = (logits.reshape(-1, logits.shape[-1]) for logits in (reference, candidate))
            kl = agreement.kl_rows(reference=reference, candidate=candidate)
            self.kl_sum, self.kl_count = self.kl_sum + float(kl.sum()), self.kl_count + len(kl)
            self.same += agreement.same_top1(reference=reference, candidate=candidate).tolist()

    def by_name(self) -> dict[str, dict[str, float]]:
        """Return the figures of each output."""
        return self.close.by_name() | {name: {"equal_values": share} for name, share in self._equal_shares().items()}

    def figures(self) -> dict[str, float]:
        """Return the figures of all float outputs together, and the lowest share of equal integers."""
        shares = self._equal_shares().values()
        return self.close.figures() | ({"equal_values": min(shares)} if shares else {})

    def _equal_shares(self) -> dict[str, float]:
        return {name: same / count for name, (same, count) in self.equal.items()}

    def metrics(self) -> list[Metric]:
        found = [Metric(name, value, metrics.unit(name)) for name, value in self.figures().items()]
        if self.kl_count:
            found.append(Metric("kl", self.kl_sum / self.kl_count, "nat"))
        same = self.same
        if len(self.pooled[0]) >= 3:  # with two sentences, the other one is always the nearest
            reference, candidate = (np.stack(vectors) for vectors in self.pooled)
            nearest = [agreement.nearest_other(vectors) for vectors in (reference, candidate)]
            same = same or (nearest[0] == nearest[1]).tolist()
            order = agreement.rank_agreement(reference=reference, candidate=candidate)
            found.append(Metric("rank_agreement", order, "1"))
        if same:
            found.append(Metric("top1_agreement", sum(same) / len(same), "1"))
        return found
