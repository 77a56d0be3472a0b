"""Measurements of one chip that predictions need: `ane-sweep calibrate`.

probes    the questions and their reasons (probes.csv); their cells are conf/sweep/calibrate.yaml
figures   rates and costs from the records of a run, as rows of ane_sweep/machine/calibrated.py
run       the sweep, the rows that it stores, and the bundle to send in
"""
