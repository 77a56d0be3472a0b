"""The editable graph: values are replaced under their names, dead ops go, new weights are written, others shared."""

import numpy as np
import pytest
from fix.checks import assert_legal, save

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb

from ane_sweep import reference
from ane_sweep.errors import PackageError
from ane_sweep.fix import output, proof
from ane_sweep.fix.build import Builder
from ane_sweep.fix.graph import Graph
from ane_sweep.fix.values import Text
from ane_sweep.mil import graph as mil
from ane_sweep.mil import package

RNG = np.random.default_rng(0)


def open_graph(path, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    source = package.read(path)
    return source, Graph(mil.view_program(output.copy_package(source)), scratch)


def finish(source, graph, target):
    fixed = graph.program.package
    graph.program.block.CopyFrom(graph.write_block())
    output.write_package(source, fixed, target)
    assert_legal(target)
    return target


def run(path, **inputs):
    return reference.load(path).predict(inputs)


@pytest.fixture
def linear(tmp_path):
    weight = RNG.standard_normal((16, 8)).astype(np.float16)

    def body(x):
        return mb.relu(x=mb.linear(x=x, weight=weight, bias=np.zeros(16, np.float16)), name="y")

    return save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 8)))


def test_a_weight_under_another_shape_is_shared_and_the_file_linked(linear, tmp_path):
    source, graph = open_graph(linear, tmp_path)
    (node,) = graph.nodes("linear")
    build = Builder(graph, node)
    weight = build.view(node.read("weight"), (16, 8, 1, 1))
    x = build.op(
        "reshape", {"x": build.op("transpose", {"x": "x", "perm": [1, 0]}, (8, 4)), "shape": [1, 8, 1, 4]}, (1, 8, 1, 4)
    )
    y = build.op("conv", {"x": x, "weight": weight, "pad_type": Text("valid")}, (1, 16, 1, 4))
    y = build.op("reshape", {"x": y, "shape": [16, 4]}, (16, 4))
    graph.replace(node.outputs[0], build.op("transpose", {"x": y, "perm": [1, 0]}, (4, 16)))
    region = proof.collect_region(graph)
    assert region.removed == ["linear"] and region.added.count("transpose") == 2 and list(region.inputs) == ["x"]
    assert proof.prove_region(graph, region, 1e-5, (1.0,), False).problem is None
    made = finish(source, graph, tmp_path / "made.mlpackage")
    x = RNG.standard_normal((4, 8)).astype(np.float16)
    np.testing.assert_allclose(run(made, x=x)["y"], run(linear, x=x)["y"], rtol=1e-2, atol=1e-2)


def test_a_new_weight_lies_in_a_file_of_its_own_until_the_package_is_written(linear, tmp_path):
    source, graph = open_graph(linear, tmp_path)
    (node,) = graph.nodes("linear")
    doubled = graph.value(node.read("weight")) * np.float16(2)
    build = Builder(graph, node)
    half = build.op("mul", {"x": "x", "y": 0.5}, (4, 8))
    made = build.op("linear", {"x": half, "weight": build.const(doubled), "bias": node.read("bias")}, (4, 16))
    graph.replace(node.outputs[0], made)
    assert len(list((tmp_path / "scratch").iterdir())) == 1
    made = finish(source, graph, tmp_path / "made.mlpackage")
    x = RNG.standard_normal((4, 8)).astype(np.float16)
    np.testing.assert_array_equal(run(made, x=x)["y"], run(linear, x=x)["y"])
    sizes = [len(list(package.read(one).blobs(package.WEIGHTS_NAME).bytes)) for one in (linear, made)]
    assert sizes[1] <= sizes[0] + 64  # the old weight is gone


def test_ops_share_a_short_constant_before_all_ops_until_their_order_changes(linear, tmp_path):
    _, graph = open_graph(linear, tmp_path)
    last, first = graph.nodes("relu")[0], next(iter(graph))
    two, one = Builder(graph, last).const(np.float16(2)), Builder(graph, first).const(np.float16(2))
    assert one == two and next(iter(graph)).outputs == [one] and graph.first() is first
    assert Builder(graph, first).const(np.float32(2)) != one, "another type is another constant"
    graph.reorder(list(graph))
    assert Builder(graph, first).const(np.float16(2)) != one, "it may stand anywhere now"
    (x,) = last.reads("x")
    for _ in range(2):  # with its last reader a constant goes, and is made again
        made = Builder(graph, last).op("add", {"x": x, "y": np.float16(3)}, graph.shape(x))
        graph.begin_site()
        (three,) = graph.maker(made).reads("y")
        graph.replace(made, x)
        assert graph.maker(three) is None


def test_an_existing_value_stands_for_another_also_where_that_is_an_output(tmp_path):
    def body(x):
        y = mb.transpose(x=mb.transpose(x=x, perm=[1, 0]), perm=[1, 0])
        return mb.relu(x=y, name="out"), mb.transpose(x=mb.transpose(x=x, perm=[1, 0]), perm=[1, 0], name="same")

    source, graph = open_graph(save(tmp_path / "m.mlpackage", body, x=("fp32", (3, 2))), tmp_path)
    for node in graph.nodes("transpose"):
        inner = graph.maker(node.read("x"))
        if node.is_alive and inner is not None:
            graph.begin_site()
            graph.replace(node.outputs[0], inner.read("x"))
            region = proof.collect_region(graph)
            assert proof.prove_region(graph, region, 0.0, (1.0,), False).problem is None
    assert not graph.nodes("transpose") and [node.type for node in graph if node.type != "const"] == [
        "relu",
        "identity",
    ]
    made = finish(source, graph, tmp_path / "made.mlpackage")
    x = RNG.standard_normal((3, 2)).astype(np.float32)
    np.testing.assert_array_equal(run(made, x=x)["same"], x)


def test_values_of_nested_blocks_follow(tmp_path):
    def body(x):
        y = mb.sqrt(x=mb.abs(x=x))
        many = mb.greater(x=mb.reduce_sum(x=x, axes=[0], keep_dims=False), y=np.float32(0))
        return mb.cond(pred=many, _true_fn=lambda: mb.sin(x=y), _false_fn=lambda: mb.identity(x=y), name="z")

    source, graph = open_graph(save(tmp_path / "m.mlpackage", body, x=("fp32", (4,))), tmp_path)
    (node,) = graph.nodes("sqrt")
    graph.replace(node.outputs[0], node.read("x"))
    made = finish(source, graph, tmp_path / "made.mlpackage")
    np.testing.assert_array_equal(run(made, x=np.full(4, -2, np.float32))["z"], np.full(4, 2, np.float32))


def test_a_wrong_type_and_a_wrong_order_are_refused(linear, tmp_path):
    _, graph = open_graph(linear, tmp_path)
    (node,) = graph.nodes("relu")
    with pytest.raises(ValueError, match="which is to replace it"):
        graph.replace(node.outputs[0], "x")
    with pytest.raises(ValueError, match="is no tensor"):
        Builder(graph, node).op("relu", {"x": "nothing"}, (4, 16), "fp16")
    (first,) = graph.nodes("linear")
    early = Builder(graph, first).op("abs", {"x": first.outputs[0]}, (4, 16))
    graph.replace("y", early)
    with pytest.raises(PackageError, match="too early"):
        graph.write_block()
