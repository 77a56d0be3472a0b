"""The language model and the classifier that ship, made from nothing: a grammar of short tales, and what is trained on them.

python -m tests.proof.tale           writes ane_sweep/data/tale, mood and texts again (some minutes of one core)
"""
