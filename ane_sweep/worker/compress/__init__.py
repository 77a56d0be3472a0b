"""Weight compression: a recipe (ane_sweep/bridge/recipes.py) applied to a converted program through coremltools.

settings.py      the weights of a program, and the recipe's setting for each
palettes.py      k-means in one dimension, on all cores, the same result every time
passes.py        the recipe as passes of coremltools.optimize over one load of the program
ranges.py        ranges of activations on real inputs, measured through the drop-in replacement
sensitivity.py   the error of the outputs that each weight's compression causes, measured in the reference runtime
torch_weights.py a recipe applied to a torch module by coreai-opt, before either toolchain converts it
allot.py         the bits of each weight, chosen by that error
"""
