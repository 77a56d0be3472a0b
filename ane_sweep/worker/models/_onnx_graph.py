"""Rewriting of an ONNX graph, without a change of its values, into ops and versions that onnx2torch converts."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, helper, inliner, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

from ane_sweep.bridge import onnx_ops
from ane_sweep.errors import StageError

LARGEST = 2**31 - 2**20  # bytes of a message: protobuf's limit
_FIRST_RUN = 7  # onnxruntime's oldest opset
_OLDEST, _NEWEST = 13, 17  # opsets that onnx2torch converts; what is outside is brought there
_WIDE = (TensorProto.FLOAT16, TensorProto.DOUBLE)
_AXES_FIRST = {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
               "ReduceProd", "ReduceSumSquare"}  # fmt: skip


def simplify(model: ModelProto, sizes: dict[str, tuple[int, ...]]) -> tuple[ModelProto, ModelProto]:
    """Return an equal model in fp32 with constants folded, in the form that onnx2torch converts, and in the form that
    onnxruntime runs. `sizes` fixes inputs' shapes, by their names.

    Raises StageError for a node that cannot be expressed.
    """
    _drop_held_inputs(model)
    for value in model.graph.input:
        for axis, size in enumerate(sizes.get(value.name, ())):
            value.type.tensor_type.shape.dim[axis].dim_value = size
    model = inliner.inline_local_functions(model)
    model = _inline_functions(model)
    _convert_to_fp32(model)
    _drop_quantisation(model)
    if _opset(model) < _OLDEST:
        model = version_converter.convert_version(model, _OLDEST)
    model = _fold_constants(model)
    _refuse_branches(model)
    folded = ModelProto.FromString(model.SerializeToString()) if model.ByteSize() < LARGEST else model
    _drop_allowzero(model)
    _lower(model)
    _mend_sums(model)
    _mend_flatten(model)
    _mend_clips(model)
    _mend_average_pools(model)
    _name_outputs(model)
    return model, folded


def _drop_held_inputs(model: ModelProto) -> None:
    """Drop inputs that have a value in the file: exporters of before IR version 4 list every weight among the inputs."""
    held = {one.name for one in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in held]
    del model.graph.input[:]
    model.graph.input.extend(kept)
    model.ir_version = max(model.ir_version, 4)


def renew(model: ModelProto) -> ModelProto | None:
    """Return a model of an opset that onnxruntime has no kernels for (before 7) in a newer one, or None for others."""
    if _opset(model) >= _FIRST_RUN:
        return None
    _drop_held_inputs(model)
    return version_converter.convert_version(model, _OLDEST)


def _opset(model: ModelProto) -> int:
    return max(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))


def _inline_functions(model: ModelProto) -> ModelProto:
    """Replace ops that have no converter by their definition in the ONNX standard, if it has one."""
    names = {node.op_type for node in model.graph.node} - onnx_ops.list_converted() - onnx_ops.FOLDED
    if not names:
        return model
    return inliner.inline_selected_functions(model, [("", name) for name in names], inline_schema_functions=True)


def _convert_to_fp32(model: ModelProto) -> None:
    def widen(tensor: TensorProto) -> None:
        if tensor.data_type in _WIDE:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float32), tensor.name))

    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info]:
        if value.type.tensor_type.elem_type in _WIDE:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for tensor in model.graph.initializer:
        widen(tensor)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                widen(attribute.t)
            if attribute.name in ("to", "dtype") and attribute.i in _WIDE:
                attribute.i = TensorProto.FLOAT


def _drop_quantisation(model: ModelProto) -> None:
    """Replace quantised constants by the numbers that they stand for, and rounded activations by clipped ones.

    The clipping stays because quantisers remove a Relu whose work it does.
    """
    held = {one.name: one for one in model.graph.initializer}
    made = {name: node for node in model.graph.node for name in node.output}
    kept = []
    for node in model.graph.node:
        if node.op_type == "QuantizeLinear":
            continue
        if node.op_type == "DequantizeLinear":
            before = made.get(node.input[0])
            if node.input[0] in held:
                made_of = _dequantise(node, held, numpy_helper.to_array(held[node.input[0]]))
                model.graph.initializer.append(numpy_helper.from_array(made_of, node.output[0]))
                continue
            if before is None or before.op_type != "QuantizeLinear":
                raise StageError(
                    f"node {node.name}: DequantizeLinear of an input that is no constant and no QuantizeLinear"
                )
            node = _clip(node, before, held, model)
        kept.append(node)
    if len(kept) < len(model.graph.node):
        del model.graph.node[:]
        model.graph.node.extend(kept)
        del model.graph.value_info[:]


def _clip(node: NodeProto, before: NodeProto, held: dict[str, TensorProto], model: ModelProto) -> NodeProto:
    """Return a Clip to the range of numbers that a quantised activation can hold."""
    if (
        any(name not in held for name in node.input[1:] if name)
        or np.size(numpy_helper.to_array(held[node.input[1]])) != 1
    ):
        raise StageError(
            f"node {node.name} (DequantizeLinear): an activation with several or computed scales has no conversion"
        )
    has_zero = len(node.input) > 2 and node.input[2] != ""
    kind = numpy_helper.to_array(held[node.input[2]]).dtype if has_zero else np.dtype(np.uint8)
    ends = []
    for number, end in enumerate((np.iinfo(kind).min, np.iinfo(kind).max)):
        ends.append(f"{node.output[0]}_end_{number}")
        value = _dequantise(node, held, np.array(end, kind)).reshape(())
        model.graph.initializer.append(numpy_helper.from_array(value, ends[-1]))
    return helper.make_node("Clip", [before.input[0], *ends], node.output, name=node.name)


def _dequantise(node: NodeProto, held: dict[str, TensorProto], numbers: np.ndarray) -> np.ndarray:
    """Return the fp32 numbers that a DequantizeLinear gives for `numbers`."""
    return _run_node(node, numbers, [held[name] for name in node.input[1:] if name])


def _run_node(node: NodeProto, numbers: np.ndarray, others: Sequence[TensorProto] = ()) -> np.ndarray:
    """Return the fp32 output of a node whose first input is `numbers`."""
    constants = [numpy_helper.from_array(numbers, node.input[0]), *others]
    graph = helper.make_graph([node], "one", [], [helper.make_empty_tensor_value_info(node.output[0])], constants)
    one = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    (made,) = ReferenceEvaluator(one).run(None, {})
    return np.asarray(made, np.float32)


def _fold_constants(model: ModelProto) -> ModelProto:
    """Return the model as onnxruntime's basic optimisations leave it: shapes and constants computed, ops still standard."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    with tempfile.TemporaryDirectory() as folder:
        before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
        onnx.save(model, before, save_as_external_data=model.ByteSize() > 2**30)
        options.optimized_model_filepath = str(after)
        onnxruntime.InferenceSession(str(before), options, providers=["CPUExecutionProvider"])
        return onnx.load(after)


def _refuse_branches(model: ModelProto) -> None:
    if left := [node.name or node.output[0] for node in model.graph.node if node.op_type in onnx_ops.BRANCHES]:
        raise StageError(
            f"nodes {', '.join(left[:5])} (If): their condition depends on numbers; no conversion to torch"
        )


def _drop_allowzero(model: ModelProto) -> None:
    """Drop an option of Reshape that changes nothing, as its constant shape has no 0."""
    held = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Reshape" and node.input[1] in held and numpy_helper.to_array(held[node.input[1]]).all():
            _remove(node, "allowzero")


def _lower(model: ModelProto) -> None:
    """Write ops of newer opsets in their form of opset 17, which computes the same."""
    if _opset(model) <= _NEWEST:
        return
    held = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    for node in model.graph.node:
        if change := (_lower_reduce if node.op_type in _AXES_FIRST else _LOWER.get(node.op_type)):
            change(node, held, model)
    for one in model.opset_import:
        if one.domain in ("", "ai.onnx"):
            one.version = _NEWEST


def _constant(node: NodeProto, number: int, held: dict[str, np.ndarray]) -> np.ndarray | None:
    if len(node.input) <= number or not node.input[number]:
        return None
    if node.input[number] not in held:
        raise StageError(
            f"node {node.name} ({node.op_type}): its input {node.input[number]} is computed; it must be a constant"
        )
    return held[node.input[number]]


def _attribute(node: NodeProto, name: str, default: object = None) -> object:
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)


def _remove(node: NodeProto, *names: str) -> None:
    kept = [one for one in node.attribute if one.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)


def _lower_reduce(node: NodeProto, held: dict[str, np.ndarray], model: ModelProto) -> None:
    axes = _constant(node, 1, held)
    if axes is None and _attribute(node, "noop_with_empty_axes", 0):
        raise StageError(f"node {node.name} ({node.op_type}): noop_with_empty_axes has no conversion")
    _remove(node, "noop_with_empty_axes")
    del node.input[1:]
    if axes is not None:
        node.attribute.append(helper.make_attribute("axes", [int(axis) for axis in axes]))


def _lower_split(node: NodeProto, held: dict[str, np.ndarray], model: ModelProto) -> None:
    """Drop num_outputs, without which an opset-17 Split cuts into equal parts. Unequal ones are refused."""
    count = _attribute(node, "num_outputs")
    known = {one.name: one for one in [*model.graph.value_info, *model.graph.input]}.get(node.input[0])
    if isinstance(count, int) and known is not None:
        axis = _attribute(node, "axis", 0)
        size = known.type.tensor_type.shape.dim[axis if isinstance(axis, int) else 0].dim_value
        if size % count:
            raise StageError(f"node {node.name} (Split): {size} in {count} unequal parts has no conversion")
    _remove(node, "num_outputs")


def _lower_pad(node: NodeProto, held: dict[str, np.ndarray], model: ModelProto) -> None:
    if len(node.input) > 3 and node.input[3]:
        raise StageError(f"node {node.name} (Pad): its input {node.input[3]} of opset 18 has no conversion")


def _lower_resize(node: NodeProto, held: dict[str, np.ndarray], model: ModelProto) -> None:
    """Refuse the options of opset 18 that change values, and drop the others."""
    policy = _attribute(node, "keep_aspect_ratio_policy", b"stretch")
    if _attribute(node, "antialias", 0) or _attribute(node, "axes") or policy != b"stretch":
        raise StageError(f"node {node.name} (Resize): antialias, axes and keep_aspect_ratio_policy have no conversion")
    _remove(node, "antialias", "axes", "keep_aspect_ratio_policy")


def _mend_sums(model: ModelProto) -> None:
    """Write out the direction of each CumSum: onnx2torch 1.5.15 sums backwards where the file leaves the default."""
    for node in model.graph.node:
        if node.op_type == "CumSum" and _attribute(node, "reverse") is None:
            node.attribute.append(helper.make_attribute("reverse", 0))


def _mend_flatten(model: ModelProto) -> None:
    """Write a Flatten of a vector as a Reshape: onnx2torch 1.5.15 flattens from an axis that a vector lacks."""
    ranks = {one.name: len(one.type.tensor_type.shape.dim) for one in [*model.graph.input, *model.graph.value_info]}
    for node in model.graph.node:
        if node.op_type == "Flatten" and ranks.get(node.input[0]) == 1:
            shape = [-1, 1] if _attribute(node, "axis", 1) == 1 else [1, -1]
            model.graph.initializer.append(numpy_helper.from_array(np.array(shape), f"{node.output[0]}_shape"))
            node.CopyFrom(
                helper.make_node("Reshape", [node.input[0], f"{node.output[0]}_shape"], node.output, name=node.name)
            )


def _mend_clips(model: ModelProto) -> None:
    """Leave out the empty ends of a Clip, and write one of an upper end alone as Min: onnx2torch 1.5.15 looks them up."""
    for node in model.graph.node:
        if node.op_type != "Clip":
            continue
        while not node.input[-1]:
            node.input.pop()
        if len(node.input) == 3 and not node.input[1]:
            node.CopyFrom(helper.make_node("Min", [node.input[0], node.input[2]], node.output, name=node.name))


def _mend_average_pools(model: ModelProto) -> None:
    """Write an AveragePool whose two ends are padded differently as Pad, AveragePool, and a product that undoes the padding's
    part in each mean, as onnx2torch 1.5.15 refuses it. Nodes without a known shape stay.
    """
    values = [*model.graph.input, *model.graph.output, *model.graph.value_info]
    shapes = {one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in values}
    kept: list[NodeProto] = []
    for node in model.graph.node:
        pads, shape = _attribute(node, "pads"), shapes.get(node.input[0]) if node.input else None
        is_plain = not isinstance(pads, list) or pads[: len(pads) // 2] == pads[len(pads) // 2 :]
        if node.op_type != "AveragePool" or is_plain or not shape or not all(shape) or _attribute(node, "ceil_mode", 0):
            kept.append(node)
            continue
        assert isinstance(pads, list)
        name, ends = node.output[0], [0, 0, *pads[: len(pads) // 2], 0, 0, *pads[len(pads) // 2 :]]
        counts_padding = bool(_attribute(node, "count_include_pad", 0))
        _remove(node, "pads", "count_include_pad")
        pool = helper.make_node("AveragePool", [f"{name}_padded"], [f"{name}_mean"], name=node.name)
        pool.attribute.extend(node.attribute)
        inside = np.pad(
            np.ones([1, 1, *shape[2:]], np.float32),
            [(0, 0), (0, 0), *zip(pads[: len(pads) // 2], pads[len(pads) // 2 :])],
        )
        share = np.ones(1, np.float32) if counts_padding else 1 / _run_node(pool, inside)
        model.graph.initializer.append(numpy_helper.from_array(np.array(ends), f"{name}_ends"))
        model.graph.initializer.append(numpy_helper.from_array(share.astype(np.float32), f"{name}_share"))
        kept += [
            helper.make_node("Pad", [node.input[0], f"{name}_ends"], [f"{name}_padded"], name=f"{node.name}_pad"), pool,
            helper.make_node("Mul", [f"{name}_mean", f"{name}_share"], node.output, name=f"{node.name}_share"),
        ]  # fmt: skip
    del model.graph.node[:]
    model.graph.node.extend(kept)


_LOWER = {"Split": _lower_split, "Pad": _lower_pad, "Resize": _lower_resize}


def _name_outputs(model: ModelProto) -> None:
    """Give each output a node of its own: onnx2torch returns whole nodes."""
    for number, value in enumerate(model.graph.output):
        named = f"output_{number}_of_graph"
        model.graph.node.append(helper.make_node("Identity", [value.name], [named], name=named))
        value.name = named
