"""The room of the `reference` runtime: ML Programs executed op by op with torch on the CPU.

What others may build on is `load` below and the `Model` and `State` that come of it; all else may change.

    model = load(path)                                   .mlpackage, .mlmodel, or a mil.package.Package
    model = load(path, function="decode")                a function of a multifunction package; "" is the default one
    model = load(path, numerics="fp32")                  "fp16" (as declared), "fp32", "ane"; None: as declared
    model = load(path, strict=False)                     cast inputs as Core ML does (fractions cut off for integers)
    model = load(path, device="cuda")                    on an NVIDIA GPU; values come and go as numpy arrays all the same

    model.spec, model.path, model.function, model.functions (all names)
    model.inputs, model.outputs    {name: features.Feature}: kind, dtype, shape, ranges, enumerated, optional, default
    model.states                   {name: features.Feature} of kind "array"
    model.realised                 what really runs: {"runtime", "numerics", "threads", "compute_units": None, ...}
    model.predict(inputs, state=None) -> {name: value}
        in:  numpy arrays (or what np.asarray takes); images as PIL images or (H, W[, C]) arrays
        out: arrays of the declared type (fp16 stays fp16; rank 0 comes as shape (1,)); images as PIL images, RGBA / L /
             F; a classifier's label as str or int and its probabilities as {label: float}
    state = model.new_state()      zeros; state.read(name) -> array of the declared type, state.write(name, array)
    model.trace(inputs, watch, state=None) -> outputs    watch(op, {output name: array}) after every op that runs;
             `op` is a mil.graph.Op (type, name, outputs, index); ops of nested blocks come once a round
    model.ops                      mil.graph.Op of every op of the function that is executed (constants folded away)

Everything that is wrong with a file or an input is errors.PackageError (UnsupportedOp for what is not executed here),
raised by `load` where it can be known before running.

    model.py                 the API above       pipeline.py   loading, and pipelines behind the same API
    plain.py                 models that are no programs: linear regressors, non-maximum suppression
    features.py              values at the border: arrays, images, classifiers, flexible shapes
    site.py                  what an op's builder sees, the table of ops, and the two laws below as helpers
    plan.py                  block -> flat plan of closures; constants prepared once, dead values freed
    layout.py                a flat plan, and running it             limits.py   sizes beyond the memory at hand
    numerics.py              the modes; mil/effects.py, ane.py, fixed.py: what is known of the Neural Engine; cuda.py: on a GPU
    trace.py                 watching values, and the drift of each op against fp32
    matching.py              which value of one program is which of another
    elementwise.py  linear.py  pooling.py  normalise.py  sorting.py  shapes.py  slices.py  blocks.py  indexing.py
    compressed.py  quantised.py  resize.py  sampling.py  recurrent.py  control.py  chance.py  detection.py

Two laws. First: an op computes with fp32 (or wider) accumulation and its result is rounded once, to its declared type.
Second: every value is contiguous and starts on a 64-byte boundary. Kernels choose their order of summation by layout
and alignment; under this law the same op on the same numbers gives the same bits, however the program was cut into
chunks.

To add an op: write a function under `@op("name")` in the file of its kind; it gets a Site and returns a Step. Where it
asks for something that is only known while the program runs (Site.static, Site.tensor ... of a computed value), it is
built anew at each run with everything known: builders need no second form for flexible shapes.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ane_sweep.mil.package import Package


def load(
    source: "Path | str | Package",
    function: str = "",
    *,
    numerics: str | None = None,
    effects: list[str] | None = None,
    strict: bool = True,
    device: str = "cpu",
) -> Any:
    """Read, check and compile one function of a package: a `Model` (see above). Raises errors.PackageError."""
    from ane_sweep.reference import pipeline

    return pipeline.load(source, function, numerics=numerics, effects=effects, strict=strict, device=device)
