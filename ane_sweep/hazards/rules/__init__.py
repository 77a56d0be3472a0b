"""The rules, one file each: the declaration RULE (hazards/rule.py) and `find`."""
