"""Weight compression: a recipe (ane_sweep/bridge/recipes.py) applied to a converted program through coremltools."""
