"""coremltools' own tests, run through the drop-in: Apple's acceptance tests for Core ML, held against our runtime.

    python -m tests.proof.upstream                         one item of each test function of every suite
    python -m tests.proof.upstream mil_ops passes          some suites
    python -m tests.proof.upstream --sample 2 --seed 7 mil_ops
    python -m tests.proof.upstream --whole mil_ops         every item (46 minutes on one core)
    python -m tests.proof.upstream --list

    suites.py         which test modules make a suite
    extras.py         what the tests need beyond ane-sweep, installed aside
    children.py       one process a suite; a crash costs one item
    plugin.py         inside that process: the drop-in, sampling, seeds, what each item built and how it ended
    tighten.py        what is changed in coremltools' helpers, so that an item proves something
    exclusions.toml   items that are not counted, each with its rule and the upstream cause; exclusions.py reads it
    verdict.py        whose fault a failure is
    report.py         per file: ran, passed, failed; then the failures by cause

An item counts if it builds an ML Program and its conversion succeeds without the drop-in. The second is measured, not
listed: what fails is run again without the drop-in, and counts against nobody here if it fails before it predicts.
"""
