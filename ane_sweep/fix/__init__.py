"""Rewrite ML Programs for the Neural Engine, and prove each change op by op. No Mac, no torch module, no coremltools.

    from pathlib import Path
    from ane_sweep.fix import driver

    report = driver.fix(Path("model.mlpackage"), Path("better.mlpackage"), chip="m4")
    for trial in report.trials:
        print(trial.rewrite, trial.status, trial.reason)      # "applied" or "refused", and the figure that decided

    rewrite     the declaration of a rewrite; `rewrites/` has one file for each
    graph       an ML Program as a graph that can be edited        values     types and constants of new ops
    build       new ops, with the types that the caller gives
    patterns    parts of patterns that rewrites share              figures    the prediction, before and after
    proof       the replaced ops and the new ones on random inputs, and the whole program
    driver      every rewrite on a trial copy, kept if it gains    output     the package, its weights streamed
    interface   rewrites that change the interface, by name     host_proof the new program and the host's part, run
    functions   functions and their descriptions

How to write one more: REWRITES.md beside this file.
"""
