"""Weight compression: a recipe (ane_sweep/bridge/recipes.py) applied to a converted program through coremltools.

settings.py      which weights a program has, and what the recipe says of each
palettes.py      k-means in one dimension, on all cores, the same result every time
passes.py        the recipe as passes of coremltools.optimize over one load of the program
ranges.py        how far activations reach on real inputs, measured through the drop-in
sensitivity.py   what each weight's compression costs the outputs, measured in the reference runtime
allot.py         bits for each weight from that
"""
