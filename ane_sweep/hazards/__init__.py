"""Warn of programs that real devices compute wrongly without an error, load for minutes, or cannot load at all.

    from ane_sweep.hazards import search

    for finding in search.search(ane_sweep.lint("model.mlpackage").prediction):
        print(finding)                                     # the ops and what happens; with .source, .do and .rewrite

To add a rule: write ane_sweep/hazards/rules/NAME.py with `RULE = HazardRule(...)` and `find(scene)`. A rule states the
issue or the measurement that it comes from, and names the rewrite of ane_sweep/fix/rewrites that mends the program.
"""
