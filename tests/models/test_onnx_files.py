"""ONNX files as people have them: of old exporters, with branches, and with ops that onnx2torch gets wrong."""

from pathlib import Path

import numpy as np
import pytest

from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError, StageError

from .test_onnx import TOLERANCE, build, needs_extra, worst_error

pytestmark = needs_extra
X = {"x": [1, 3, 8, 8]}


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(nodes, inputs, outputs, held=None, opset=17, ir=10, *, list_weights=False) -> None:
    """Write net.onnx; `list_weights` lists them among the inputs, as exporters did before IR version 4."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    def port(name, shape, kind=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, kind, shape)

    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in (held or {}).items()]
    listed = [port(one.name, list(one.dims), one.data_type) for one in weights] if list_weights else []
    graph = helper.make_graph(
        nodes, "g", [port(*one) for one in inputs.items()] + listed, [port(*one) for one in outputs.items()], weights
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir), "net.onnx")


def node(kind, takes, gives, **options):
    from onnx import helper

    return helper.make_node(kind, takes, gives, name=options.pop("name", kind.lower()), **options)


@pytest.mark.parametrize("opset", [6, 8])
def test_an_old_file_that_lists_its_weights_among_its_inputs(here, opset):
    random = np.random.default_rng(0)
    held = {"w": random.standard_normal((4, 3, 3, 3), np.float32), "b": random.standard_normal(4, np.float32)}
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    write(nodes, X, {"y": [1, 4, 6, 6]}, held, opset, 3, list_weights=True)
    module, source = build()
    assert list(source.arch["inputs"]) == ["x"] and worst_error(module) < TOLERANCE


@pytest.mark.parametrize("counts", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 1, 1], [1, 0, 2, 1]])
def test_an_average_pool_with_uneven_pads(here, pads, counts):
    pool = node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], pads=pads, count_include_pad=counts)
    sizes = [(8 + pads[axis] + pads[axis + 2] - 3) // 2 + 1 for axis in (0, 1)]
    write([pool], X, {"y": [1, 3, *sizes]})
    assert worst_error(build()[0]) < TOLERANCE


@pytest.mark.parametrize("options", [{}, {"reverse": 1}, {"exclusive": 1}])
def test_a_running_sum_goes_the_way_that_the_file_says(here, options):
    write([node("CumSum", ["x", "axis"], ["y"], **options)], X, {"y": X["x"]}, {"axis": np.int64(2)})
    assert worst_error(build()[0]) < TOLERANCE


def test_a_vector_is_flattened(here):
    write([node("Flatten", ["x"], ["y"])], {"x": [4]}, {"y": [4, 1]}, opset=13)
    module, _ = build()
    assert worst_error(module) == 0 and module.ports.outputs[0].shape == (4, 1)


@pytest.mark.parametrize("ends", [["low", ""], ["", "high"], ["low", "high"], ["", ""]])
def test_a_clip_may_lack_an_end(here, ends):
    write(
        [node("Clip", ["x", *ends], ["y"])],
        {"x": [4, 8]},
        {"y": [4, 8]},
        {"low": np.float32(-0.3), "high": np.float32(0.4)},
        opset=13,
    )
    assert worst_error(build()[0]) == 0


def branch(condition, yes="Relu", no="Neg"):
    """Return nodes of an If: `yes` where true, `no` where false."""
    from onnx import TensorProto, helper

    def body(kind, name):
        return helper.make_graph(
            [node(kind, ["x"], [name])], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)]
        )

    return [*condition, node("If", ["c"], ["y"], then_branch=body(yes, "t"), else_branch=body(no, "e"))]


@pytest.mark.parametrize("size", [1, 2])
def test_a_branch_that_shapes_decide_is_folded(here, size):
    nodes = branch(
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["d"]), node("Equal", ["d", "one"], ["c"])]
    )
    write(nodes, {"x": [size, 4]}, {"y": [size, 4]}, {"zero": np.int64(0), "one": np.int64(1)})
    assert worst_error(build()[0]) == 0


@pytest.mark.parametrize(("no", "faulty"), [("Neg", False), ("Det", True)])
def test_the_ops_inside_branches_are_looked_at_before_anything_runs(here, no, faulty):
    """Where one branch can be converted, shapes may choose it."""
    condition = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["d"]), node("Equal", ["d", "one"], ["c"])]
    write(branch(condition, "Det", no), {"x": [2, 2]}, {"y": [2, 2]}, {"zero": np.int64(0), "one": np.int64(1)})
    if not faulty:
        assert worst_error(build()[0]) == 0
        return
    with pytest.raises(ConfigError, match="op Det has no conversion to torch; its nodes: det, det"):
        build()


def test_a_branch_that_numbers_decide_is_refused_before_anything_runs(here):
    nodes = branch([node("ReduceMax", ["x"], ["m"], keepdims=0), node("Greater", ["m", "zero"], ["c"])])
    write(nodes, {"x": [2, 4]}, {"y": [2, 4]}, {"zero": np.float32(0)})
    with pytest.raises(ConfigError, match="op If has no conversion to torch; its nodes: if"):
        build()


@pytest.mark.parametrize(
    ("wrong", "shape"),
    [
        (
            ("Resize", ["x", "", "scales"], {"mode": "cubic", "coordinate_transformation_mode": "asymmetric"}),
            [1, 3, 16, 16],
        ),
        (("AveragePool", ["x"], {"kernel_shape": [2, 2], "dilations": [2, 2]}), [1, 3, 6, 6]),
    ],
)
def test_an_op_that_the_bridge_computes_wrongly_is_refused_with_its_node(here, wrong, shape):
    kind, takes, options = wrong
    nodes = [node("Relu", ["x"], ["r"], name="first"), node(kind, ["r", *takes[1:]], ["z"], name="culprit", **options),
             node("Neg", ["z"], ["y"], name="last")]  # fmt: skip
    write(nodes, X, {"y": shape}, {"scales": np.array([1, 1, 2, 2], np.float32)} if kind == "Resize" else {}, opset=19)
    with pytest.raises(
        StageError, match=rf"node culprit \({kind}\): onnx2torch computes other numbers than onnxruntime"
    ):
        build()


@pytest.mark.slow
@pytest.mark.ci
def test_lint_names_the_nodes_that_stay_off_the_neural_engine(here, capsys):
    nodes = [node("Relu", ["x"], ["r"], name="stem/Relu"), node("CumSum", ["r", "axis"], ["s"], name="sum/CumSum"),
             node("Neg", ["s"], ["y"], name="head/Neg")]  # fmt: skip
    write(nodes, {"x": [1, "n", 8, 8]}, {"y": [1, "n", 8, 8]}, {"axis": np.int64(2)})
    assert main(["lint", "net.onnx"]) == 2
    assert "input x is [1, n, 8, 8], with no size for n" in capsys.readouterr().err
    assert main(["lint", "net.onnx", "--inputs", "{x: [1,3,8,8]}"]) == 1
    said = capsys.readouterr().out
    assert "  node  sum_CumSum (cumsum) on the CPU: cumsum has no ANE kernel" in said and "net.onnx: NOT enough" in said
    assert [path.name for path in Path().iterdir()] == ["net.onnx"], "nothing is left behind"
