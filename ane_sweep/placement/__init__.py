"""Predict which unit runs each op of an ML Program, why not the Neural Engine, and how long a call takes. No Mac is needed.

    from pathlib import Path

    from ane_sweep.placement import chips, judge, legality, predict, programs
    from ane_sweep.placement.sites import Site, Tensor

    verdict = judge.judge("model.mlpackage", chip="m4", compute_units="cpu_and_ne", min_ane_share=0.9)
    print(verdict.ok, verdict.ane_share)               # str(verdict): reasons, gates, advice and estimate as text
    for row in verdict.ops:                            # in file order
        print(row.site.name, row.site.type, row.preferred, row.reason, row.confidence)

    loaded = programs.load_chain([Path("model.mlpackage")])    # or the chunks of a model, in the order they run
    for chip in chips.table().values():                        # m1, m4, a17_pro ...: data/chips.json
        prediction = predict.predict_chain(loaded, chip, "all")
        print(chip.chip, prediction.summary().ops, prediction.estimate or prediction.not_estimated)

    sine = Site("sin", {"x": [Tensor("fp16", (1, 64))]}, [Tensor("fp16", (1, 64))])    # an op without a program
    print(legality.judge(sine, chips.get("m1")))

    def measure(chip: str) -> list[chips.Measurement]:         # your own figures, for chips without published ones
        return [chips.Measurement("cpu_and_ne", "dispatch_ms", 0.25)] if chip == "m3" else []

    print(chips.get("m3", measure).dispatch_ms)

Main types:

    judge.Verdict         a package on a chip: `ok`, `ane_share`, `ops`, `summary`, `frame()`, `to_dict()`
    predict.Prediction    the same without a judgement: `rows`, `summary()`, `estimate`, `at_shapes`, `table()`
    rows.OpRow            one op: its site, verdict, prices in ms, preferred unit, reason, confidence
    types.Placement       numbers of ops and shares of the cost by unit, reasons, gates and advice
    latency.Estimate      milliseconds of one call, with band and anchor
    chips.Chip            one row of the chip table, and the caller's measurements of it

Units are cpu, gpu and ane; `compute_units` are Core ML's: all, cpu_only, cpu_and_gpu, cpu_and_ne. Times are ms, sizes bytes.
Everything is of kind "predicted" or "estimated": nothing is measured, and confidence (high, medium, low) says how far each
answer goes. A chip without figures of the unit in question has no estimate. Known facts are data with a source per row
(`data/`); METHOD.md tells known from fitted and guessed, with the scores. The fit itself is in tests/proof/placement.

Packages that cannot be read raise errors.PackageError; unknown chips and words errors.ConfigError.
"""
