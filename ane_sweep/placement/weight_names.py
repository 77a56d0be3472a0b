"""The torch module of an op as its weight's name tells it: coremltools names a weight by the parameter's path."""

import re

from ane_sweep.mil.proto import MIL_pb2

_WEIGHTS = ("weight", "gamma", "bias", "weight_ih", "x", "y")  # parameters that hold weights, best known first
_PARAMETER = re.compile(
    r"(?P<module>.+?)_(?:weight|bias|gamma|beta|weight_ih|weight_hh)"
    r"(?:_(?:to_fp16|to_fp32|palettized|quantized|sparsified|promoted|affine))*"
)
_GENERATED = re.compile(r"(?:op|var|const|linear|conv|matmul|input|tensor)(?:_\d+)*")


def find_module(proto: MIL_pb2.Operation) -> str:
    """Return the module of an op ("layers_0_q" of the weight "layers_0_q_weight_to_fp16"), or "" if its weights tell none."""
    for parameter in _WEIGHTS:
        for binding in proto.inputs[parameter].arguments if parameter in proto.inputs else ():
            found = _PARAMETER.fullmatch(binding.name)
            if found and not _GENERATED.fullmatch(found["module"]):
                return found["module"]
    return ""
