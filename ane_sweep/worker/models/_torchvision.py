"""A stand-in for a torchvision that is absent or does not work. Importing this module installs the stand-in.

onnx2torch imports torchvision, and only NonMaxSuppression and RoiAlign use it.
"""

import sys
from types import ModuleType

try:
    import torchvision.ops  # noqa: F401
except (ImportError, RuntimeError):  # RuntimeError: built for another torch
    for name in [one for one in sys.modules if one.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    stand_in = ModuleType("torchvision.ops")
    stand_in.__dict__["roi_align"] = None
    sys.modules |= {"torchvision": ModuleType("torchvision"), "torchvision.ops": stand_in}
