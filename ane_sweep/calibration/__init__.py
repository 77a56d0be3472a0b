"""Measurements of one chip that predictions need: `ane-sweep calibrate`. Its cells are conf/sweep/calibrate.yaml."""
