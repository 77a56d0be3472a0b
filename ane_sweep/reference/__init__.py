"""Execute ML Programs op by op with torch, on any host: the interpreter behind the `reference` runtime.

    import numpy as np
    from ane_sweep import reference
    from ane_sweep.reference import trace

    model = reference.load("model.mlpackage")                      # a .mlmodel, .mlmodelc or mil.package.Package as well
    outputs = model.predict({"x": np.ones((1, 8), np.float32)})   # {name: value}

    exact = reference.load("model.mlpackage", numerics="fp32")     # "fp16" as declared, "fp32", or "ane"
    for seen in trace.rank_worst(trace.measure_drift(model, exact, {"x": np.ones((1, 8), np.float32)}), 3):
        print(seen.name, seen.drift)

    model.inputs, model.outputs, model.states    {name: features.Feature}: kind, dtype, shape, ranges, enumerated, default
    model.spec, path, function, functions        the Model message, its file, the function and the names of all functions
    model.realised                               the actual settings: {"runtime", "numerics", "threads",
                                                 "compute_units": None}
    model.ops                                    mil.graph.Op of every op that is executed (constants are folded away)
    model.predict(inputs, state=None)            in: numpy arrays; images as PIL images or (H, W[, C]) arrays
                                                 out: arrays of the declared type (rank 0 as shape (1,)), images as PIL
                                                 images, a classifier's label as str or int, its probabilities as a dict
    state = model.new_state()                    zeros; state.read(name), state.write(name, array)
    model.trace(inputs, watch, state=None)       predicts, and calls watch(op, {output name: array}) after every op

Everything wrong with a file or an input is errors.PackageError (UnsupportedOp for an op that is not executed here),
raised by `load` if it can be known before running; errors.ConfigError for an unknown mode, errors.Unavailable for a
missing GPU.

    pipeline, model                   loading; ML Programs; linear regressors and non-maximum suppression
    plan, layout, site, limits        a block compiled to a flat plan of steps; running it; the builders' view; size checks
    onednn, orders                    products of fp32 values; which values may lie with their channels last in memory
    features                          values at the border: arrays, images, classes, flexible shapes
    numerics, ane, fixed_point, cuda  the modes; the known arithmetic of the Neural Engine (mil/effects.py); on a GPU
    trace, matching                   observing values, the drift of each op, and pairing values of different programs
    blocks, compressed, control, detection, elementwise, indexing, linear, normalise, recurrent, resize, sampling, shapes,
    slices                            the builders of the ops

Two laws. First: an op computes with fp32 (or wider) accumulation and its result is rounded once, to its declared type.
Second: every value starts on a 64-byte boundary and is contiguous, unless all its readers give the same bits in any order of
memory (orders.py). Kernels choose their order of summation by layout and alignment; under this law the same op on the same
numbers gives the same bits, however the program was cut into chunks.

To add an op: write a function of tensors under `@kernel("name")` in the file of its kind, or, if it must prepare more,
one under `@op("name")` that gets a Site and returns a Step. A builder that needs values computed while the program runs
(by Site.static, Site.tensor ...) is called again at each run with all values known, so builders need no second form for
flexible shapes.
"""

from ane_sweep.reference.pipeline import load

__all__ = ["load"]
