"""Warn of programs that real devices compute wrongly without an error, load for minutes, or cannot load at all.

    from ane_sweep.hazards import search

    for finding in search.search(ane_sweep.lint("model.mlpackage").prediction):
        print(finding)                                     # the ops and what happens; with .source, .do and .rewrite

    rule         the declaration of a rule, and the places that it finds
    search       every rule on every function of a package
    bounds       the least and largest number that a value can have, as far as the program alone tells
    known_wrong  ops that Core ML is known to compute wrongly (data/known_wrong.csv)
    running      runs of the program: its numbers in fp16, and with the Neural Engine's known roundings, beside fp32

To add a rule: write ane_sweep/hazards/rules/NAME.py with `RULE = HazardRule(...)` and `find(scene)`. A rule states the
issue or the measurement that it comes from, and names the rewrite of ane_sweep/fix/rewrites that mends the program.
"""
