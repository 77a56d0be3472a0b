"""Several programs loaded at once and predicted in turns: how the memory of a Neural Engine was probed from outside.

One sample is a round, every copy once, and is given per prediction; each copy's own times stand beside it, so that the
one that left the Neural Engine shows. (Five copies of 820 MB on an M1 Max: the fifth ran on the CPU, and identical ones
shared memory; more-ane-transformers notes, 30 March to 1 April 2023.)

    identical   the same package each time
    different   each a copy with other weights: in every 16 KiB of them the lowest bits of one value differ, so that no
                page of two copies is equal; outputs change about as much as by rounding the weights to fp16
    sizes       copies of other sizes are the beginning of the program, up to the cut that comes nearest in bytes
"""

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep.bridge.figures import Metric
from ane_sweep.errors import StageError
from ane_sweep.worker.conversion import packages
from ane_sweep.worker.runtimes._runtime import Module, Runtime

if TYPE_CHECKING:
    import numpy as np

    from ane_sweep.worker.timing.sampling import Samples

PAGE_BYTES = 16384  # of Apple's chips; one change in each keeps the kernel and the ANE from sharing it
_FLOATS = {"fp16": 2, "fp32": 4, "bf16": 2}


class Copies(Runtime):
    """A Runtime made of several. `predict` calls each once, in the order of their numbers, and gives the first's
    outputs."""

    clock: Callable[[], float]

    def __init__(self, loaded: list[Runtime], load_s: list[float], clock: Callable[[], float]):
        self.loaded, self.load_s, self.clock = loaded, load_s, clock
        self.calls_s: list[list[float]] = [[] for _ in loaded]
        self.realised: dict[str, Any] = {**loaded[0].realised, "copies": len(loaded)}
        self.parts, self.part = len(loaded), "copy"

    @property
    def last_native_ms(self) -> float | None:
        said = [ms for one in self.loaded if (ms := one.last_native_ms) is not None]
        return sum(said) if len(said) == len(self.loaded) else None

    def prepare(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Inputs in the types that the runtime takes at once."""
        return self.loaded[0].prepare(inputs)

    def predict(self, inputs: "dict[str, np.ndarray]") -> "dict[str, np.ndarray]":
        """Outputs by name, of copy 1."""
        found = None
        for one, times in zip(self.loaded, self.calls_s, strict=True):
            start = self.clock()
            made = one.predict(inputs)
            end = self.clock()
            times.append(end - start)
            if self.marks is not None:
                self.marks += (start, end)
            found = made if found is None else found
        assert found is not None
        return found

    def per_prediction(self, taken: "Samples") -> "Samples":
        """Samples of rounds as seconds a prediction."""
        count = len(self.loaded)

        def shared(seconds: list[float]) -> list[float]:
            return [one / count for one in seconds]

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
        """Each copy's load time, and the median of its calls but the first; how the slowest compares with the
        fastest."""
        from ane_sweep.stats.samples import quantile

        found, medians = [], []
        for number, (load_s, calls) in enumerate(zip(self.load_s, self.calls_s, strict=True), 1):
            medians.append(quantile(calls[1:] or calls, 0.5))
            found.append(Metric(f"load_copy_{number}_ms", 1000 * load_s, "ms", source=source))
            found.append(Metric(f"latency_copy_{number}_median_ms", 1000 * medians[-1], "ms", source=source))
        if min(medians) > 0:
            found.append(Metric("latency_copies_ratio", max(medians) / min(medians), "1", source=source))
        return found


def load(
    runtime: Module,
    params: dict[str, Any],
    inputs: dict[str, Path],
    clock: Callable[[], float] = time.perf_counter,
) -> Copies:
    """Load `params["copies"]` {count, kind, order, perhaps sizes}. Raises what the runtime's own `load` raises,
    errors.StageError."""
    asked = params["copies"]
    programs = _make_programs(inputs["program"], asked)
    numbers, is_own = list(programs), all(folder == inputs["program"] for folder in programs.values())
    rest = {role: path for role, path in inputs.items() if is_own or role != "compiled"}
    loaded, load_s = {}, {}
    for number in numbers if asked["order"] == "forward" else reversed(numbers):
        start = clock()
        loaded[number] = runtime.load(params, {**rest, "program": programs[number]})
        load_s[number] = clock() - start
    found = Copies([loaded[number] for number in numbers], [load_s[number] for number in numbers], clock)
    if "sizes" in asked:
        found.realised["copies_bytes"] = [
            packages.measure_bytes(programs[number] / "model.mlpackage") for number in numbers
        ]
    return found


def _make_programs(source: Path, asked: dict[str, Any]) -> dict[int, Path]:
    """The folder that each copy is loaded from, by number: the source itself where nothing about it is to differ."""
    sizes, folder = asked.get("sizes", [1]), Path(tempfile.mkdtemp())
    found = {}
    for number in range(1, asked["count"] + 1):
        share = sizes[(number - 1) % len(sizes)]
        found[number] = source if share == 1 else _cut_beginning(source, folder / f"share {share}", share)
        if asked["kind"] == "different":
            found[number] = _copy_varied(found[number], folder / str(number), number)
    return found


def _cut_beginning(source: Path, target: Path, share: float) -> Path:
    """A folder with the first part of a program, whose weights come nearest to `share` of all."""
    from ane_sweep.mil import chunker, cuts, graph, package, writer
    from ane_sweep.mil.line import line_up

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
    """A copy of a folder of programs whose weights differ from those of every other number."""
    shutil.copytree(source, target)
    changed = sum(_vary_package(path, number) for path in sorted(target.glob("*.mlpackage")))
    if not changed:
        raise StageError(
            f"copies_kind=different: the weight files of {source.name} hold no fp16 or fp32 weights to tell copies apart by; "
            "use copies_kind=identical, or precision=fp16"
        )
    return target


def _vary_package(package_path: Path, number: int) -> int:
    """Change one value in every page of the floating-point weights of a package; returns how many."""
    import numpy as np

    from ane_sweep.mil import pipeline
    from ane_sweep.mil.weights import blob_values

    changed = 0
    for part in pipeline.read_programs(package_path):
        values = [value.blobFileValue for op in _iterate_operations(part.spec) for value in blob_values(op)]
        for file_name in {value.fileName for value in values}:
            blobs = part.blobs(file_name)
            records = [blobs.record(offset) for offset in sorted({v.offset for v in values if v.fileName == file_name})]
            weights = np.memmap(blobs.path, np.uint8, "r+")
            for record in records:
                if record.dtype_name in _FLOATS:
                    page = weights[record.data_offset : record.data_offset + record.size : PAGE_BYTES]
                    page ^= number  # at most axes.copies.MOST_DIFFERENT: the lowest of the mantissa's bits
                    changed += len(page)
            weights.flush()
    return changed


def _iterate_operations(spec: Any) -> Any:
    for function in spec.mlProgram.functions.values():
        for block in function.block_specializations.values():
            yield from block.operations
