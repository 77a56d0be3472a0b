"""The rules, one file each: the declaration RULE and mostly `find` (hazards/rule.py)."""
