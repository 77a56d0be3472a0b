"""Several programs loaded at once and predicted in turn, which tests the memory of a Neural Engine from outside.

One sample is a round in which every copy predicts once, stated per prediction; each copy's own times are reported too,
which shows a copy that left the Neural Engine. (Five copies of 820 MB on an M1 Max: the fifth ran on the CPU, and
identical ones shared memory; more-ane-transformers notes, 30 March to 1 April 2023.)

    identical   the same package each time
    different   copies with other weights: in every 16 KiB of them the lowest bits of one value differ, so that no page of
                two copies is equal; outputs change about as much as by rounding the weights to fp16
    sizes       smaller copies are the beginning of the program, up to the cut with the nearest size in bytes
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ane_sweep.bridge.figures import Metric
from ane_sweep.errors import StageError
from ane_sweep.mil import chunker, cuts, graph, package, pipeline, writer
from ane_sweep.mil.line import line_up
from ane_sweep.mil.weights import program_blob_values
from ane_sweep.stats.samples import quantile
from ane_sweep.worker.params import CopiesParams, Params
from ane_sweep.worker.programs.mlprogram import size as packages
from ane_sweep.worker.runtimes._runtime import Arrays, Module, Runtime
from ane_sweep.worker.timing.sampling import Samples

PAGE_BYTES = 16384  # of Apple's chips; one change in each keeps the kernel and the ANE from sharing it


class _CopiesOnly(Params, frozen=True):
    copies: CopiesParams


_FLOATS = {"fp16": 2, "fp32": 4, "bf16": 2}


class Copies(Runtime):
    """A runtime of several copies: `predict` calls each once, in order, and returns the outputs of the first."""

    clock: Callable[[], float]

    def __init__(self, loaded: list[Runtime], load_s: list[float], clock: Callable[[], float]):
        self.loaded, self.load_s, self.clock = loaded, load_s, clock
        self.calls_s: list[list[float]] = [[] for _ in loaded]
        self.realised: dict[str, object] = {**loaded[0].realised, "copies": len(loaded)}
        self.parts, self.part = len(loaded), "copy"

    @property
    def last_native_ms(self) -> float | None:
        times = [ms for copy in self.loaded if (ms := copy.last_native_ms) is not None]
        return sum(times) if len(times) == len(self.loaded) else None

    def prepare(self, inputs: Arrays) -> Arrays:
        """Return inputs in types that the runtime takes without conversion."""
        return self.loaded[0].prepare(inputs)

    def predict(self, inputs: Arrays) -> Arrays:
        """Predict with each copy in turn and return the outputs of copy 1."""
        outputs = None
        for copy, times in zip(self.loaded, self.calls_s, strict=True):
            start = self.clock()
            made = copy.predict(inputs)
            end = self.clock()
            times.append(end - start)
            if self.marks is not None:
                self.marks += (start, end)
            outputs = made if outputs is None else outputs
        assert outputs is not None
        return outputs

    def per_prediction(self, taken: Samples) -> Samples:
        """Convert samples of rounds to seconds per prediction."""
        count = len(self.loaded)

        def shared(seconds: list[float]) -> list[float]:
            return [second / count for second in seconds]

        idle = None if taken.after_idle_s is None else taken.after_idle_s / count
        return replace(
            taken,
            first_s=taken.first_s / count,
            warmup_s=shared(taken.warmup_s),
            steady_s=shared(taken.steady_s),
            after_idle_s=idle,
            native_s=shared(taken.native_s),
        )

    def metrics(self, source: str) -> list[Metric]:
        """Return each copy's load time and median call without the first, and the ratio of slowest to fastest."""
        metrics, medians = [], []
        for number, (load_s, calls) in enumerate(zip(self.load_s, self.calls_s, strict=True), 1):
            medians.append(quantile(calls[1:] or calls, 0.5))
            metrics.append(Metric(f"load_copy_{number}_ms", 1000 * load_s, "ms", source=source))
            metrics.append(Metric(f"latency_copy_{number}_median_ms", 1000 * medians[-1], "ms", source=source))
        if min(medians) > 0:
            metrics.append(Metric("latency_copies_ratio", max(medians) / min(medians), "1", source=source))
        return metrics


def load(
    runtime: Module, params: dict[str, object], inputs: dict[str, Path], clock: Callable[[], float] = time.perf_counter
) -> Copies:
    """Load several copies of a program. Raises the errors of the runtime's `load`, and errors.StageError."""
    copies = _CopiesOnly.read(params).copies
    programs = _make_programs(inputs["program"], copies)
    numbers, is_own = list(programs), all(folder == inputs["program"] for folder in programs.values())
    rest = {role: path for role, path in inputs.items() if is_own or role != "compiled"}
    loaded, load_s = {}, {}
    for number in numbers if copies.order == "forward" else reversed(numbers):
        start = clock()
        loaded[number] = runtime.load(params, {**rest, "program": programs[number]})
        load_s[number] = clock() - start
    made = Copies([loaded[number] for number in numbers], [load_s[number] for number in numbers], clock)
    if copies.sizes:
        made.realised["copies_bytes"] = [
            packages.measure_bytes(programs[number] / "model.mlpackage") for number in numbers
        ]
    return made


def _make_programs(source: Path, copies: CopiesParams) -> dict[int, Path]:
    """Return {number of a copy: its folder}; for an unchanged copy this is the source itself."""
    sizes, folder = copies.sizes or [1], Path(tempfile.mkdtemp())
    programs = {}
    for number in range(1, copies.count + 1):
        share = sizes[(number - 1) % len(sizes)]
        programs[number] = source if share == 1 else _cut_beginning(source, folder / f"share {share}", share)
        if copies.kind == "different":
            programs[number] = _copy_varied(programs[number], folder / str(number), number)
    return programs


def _cut_beginning(source: Path, target: Path, share: float) -> Path:
    """Write the first part of a program to a folder, cut where its weights come nearest to `share` of all."""
    if not target.exists():
        (path,) = package.program_paths(source)
        line = line_up(graph.load(path))
        (whole,) = cuts.weight_bytes(line, [])
        if not line.positions:
            raise StageError(f"copies_sizes: {source.name} has no place to cut; leave copies_sizes out")
        wanted = share * whole
        place = min(reversed(line.positions), key=lambda place: abs(cuts.weight_bytes(line, [place])[0] - wanted))
        target.mkdir()
        name = graph.default_function(line.program.spec)
        writer.write({name: (line.program, chunker.split_at(line, [place])[0])}, target / "model.mlpackage")
    return target


def _copy_varied(source: Path, target: Path, number: int) -> Path:
    """Copy a folder of programs with slightly changed weights; each `number` gives other weights."""
    shutil.copytree(source, target)
    changed = sum(_vary_package(path, number) for path in sorted(target.glob("*.mlpackage")))
    if not changed:
        raise StageError(
            f"copies_kind=different: the weight files of {source.name} hold no fp16 or fp32 weights to tell copies apart by; "
            "use copies_kind=identical, or precision=fp16"
        )
    return target


def _vary_package(package_path: Path, number: int) -> int:
    """Change one value in every memory page of a package's floating-point weights and return the number of changes."""
    changed = 0
    for part in pipeline.read_programs(package_path):
        values = [value.blobFileValue for value in program_blob_values(part.spec.mlProgram)]
        for file_name in {value.fileName for value in values}:
            blobs = part.blobs(file_name)
            records = [blobs.record(offset) for offset in sorted({v.offset for v in values if v.fileName == file_name})]
            weights = np.memmap(blobs.path, np.uint8, "r+")
            for record in records:
                if record.dtype_name in _FLOATS:
                    page = weights[record.data_offset : record.data_offset + record.size : PAGE_BYTES]
                    page ^= number  # at most axes.running.MOST_DIFFERENT: the lowest of the mantissa's bits
                    changed += len(page)
            weights.flush()
    return changed
