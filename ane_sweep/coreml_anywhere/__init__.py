"""A drop-in for coremltools' native module: `MLModel.predict` and what belongs to it, without a Mac.

    import ane_sweep.coreml_anywhere
    ane_sweep.coreml_anywhere.install()          # before or after coremltools is imported; never on its own
    import coremltools as ct
    ct.models.MLModel("model.mlpackage").predict({"x": x})
    ane_sweep.coreml_anywhere.uninstall()        # coremltools is as it was

What runs is the reference runtime of this project: ML Programs, pipelines of them, and the linear regressor. What an
Apple device would give differs within what fp16 allows; timings are those of this CPU. `MLComputePlan` answers with our
prediction of placement, marked as such (plan.py).

    hook.py        install and uninstall: what is put into coremltools, and taken out again
    native.py      the module that stands in: the classes and functions that coremltools looks for
    loading.py     a model on the reference runtime; errors as coremltools expects them
    features.py    values in and out, as the native binding takes and gives them
    compiled.py    what `.mlmodelc` is here: the model's own files, beside model.mil
    miltext.py     a program as MIL text
    structure.py   plan.py   devices.py    what MLModelStructure, MLComputePlan and MLComputeDevice ask for

Importing this imports neither coremltools nor torch.
"""

from ane_sweep.coreml_anywhere.hook import install, installed, uninstall

__all__ = ["install", "installed", "uninstall"]
