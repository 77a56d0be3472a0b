"""Single measurements that only a chip of its kind can answer: `ane-sweep calibrate`.

probes    which there are, and why (probes.csv); their cells are conf/sweep/calibrate.yaml
figures   what the records of a run say: rows of ane_sweep/placement/here.py
run       the sweep, the rows kept, and the bundle to send in
"""
