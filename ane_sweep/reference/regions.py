"""Run some ops of a program by themselves, on given values: no package, no description."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch

from ane_sweep.mil.element_types import tensor_type
from ane_sweep.mil.graph import Program
from ane_sweep.mil.package import Package
from ane_sweep.mil.proto import MIL_pb2
from ane_sweep.reference import numerics, plan
from ane_sweep.reference.control import StateCell


def run_ops(
    package: Package, opset: str, ops: Iterable[MIL_pb2.Operation], outputs: Sequence[str],
    inputs: Mapping[str, MIL_pb2.ValueType], values: Mapping[str, np.ndarray], mode: str,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Return the outputs by name, in fp32 for values that are declared fp16 if `mode` is "fp32".

    `ops` stand in an order in which they can run; `inputs` are the types of the outside values, and `values` these
    values. The final value of a state is returned under the state's name. Raises errors.PackageError.
    """
    function = MIL_pb2.Function(opset=opset)
    for name, kind in inputs.items():
        function.inputs.add(name=name).type.CopyFrom(kind)
    block = function.block_specializations[opset]
    block.operations.extend(ops)
    block.outputs.extend(dict.fromkeys(name for name in outputs if name not in inputs))
    chosen = numerics.make_mode(mode)
    given = {name: _prepare(inputs[name], value, chosen) for name, value in values.items()}
    kinds = [tensor_type(one.type) for proto in block.operations for one in proto.outputs]
    is_small = all(kind is None or (kind.is_static and kind.byte_count <= 1 << 20) for kind in kinds)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if is_small else threads)  # further ones would wait longer than they compute
        compiled = plan.compile_program(Program(package, function, block, opset), chosen)
        made = {**given, **compiled.run(given)}
    finally:
        torch.set_num_threads(threads)
    states = [name for name, value in given.items() if isinstance(value, StateCell)]
    return {name: _read(made[name]) for name in [*outputs, *states]}


def _prepare(kind: MIL_pb2.ValueType, value: np.ndarray, mode: numerics.Mode) -> object:
    inner = kind.stateType.wrappedType if kind.WhichOneof("type") == "stateType" else kind
    found, tensor = tensor_type(inner), torch.from_numpy(np.ascontiguousarray(value).reshape(value.shape)).clone()
    made = tensor.to(mode.dtypes.get(found.dtype, tensor.dtype)) if found is not None else tensor
    return StateCell(made) if inner is not kind else made


def _read(value: object) -> np.ndarray:
    tensor = value.value if isinstance(value, StateCell) else value
    return tensor.numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
