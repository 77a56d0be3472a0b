"""A drop-in for coremltools' native module: `MLModel.predict` and its companions, without a Mac.

    import ane_sweep.coreml_anywhere
    ane_sweep.coreml_anywhere.install()          # before or after coremltools is imported; never on its own
    import coremltools as ct
    ct.models.MLModel("model.mlpackage").predict({"x": x})
    ane_sweep.coreml_anywhere.uninstall()        # restores coremltools

Models run on the reference runtime of this project: ML Programs, pipelines of them, and the linear regressor. The results
of an Apple device differ within the limits of fp16; timings are those of this CPU. `MLComputePlan` answers with our
prediction of placement, marked as such (plan.py).

Importing this imports neither coremltools nor torch; the functions import torch when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ane_sweep.coreml_anywhere.hook import install, installed, uninstall

__all__ = ["install", "installed", "uninstall"]


def __getattr__(name: str) -> object:
    if name not in (*__all__, "hook"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    hook = import_module(f"{__name__}.hook")
    return hook if name == "hook" else getattr(hook, name)
