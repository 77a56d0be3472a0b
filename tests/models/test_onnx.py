"""model=onnx: files of torch's exporters give onnxruntime's numbers, and what cannot be converted is refused with its node."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from ane_sweep.__main__ import main
from ane_sweep.bridge import onnx_ops
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.planner import onnx_files

MISSING = onnx_ops.find_missing()
needs_extra = pytest.mark.skipif(bool(MISSING), reason=f"pip install 'ane-sweep[onnx]' brings {', '.join(MISSING)}")
TOLERANCE = 64 * torch.finfo(torch.float32).eps  # of the largest number: two orders of the same sums in fp32


class Steps(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.inner = kind(6, 8, num_layers=2, batch_first=True, **options)

    def forward(self, x):
        return self.inner(x)[0]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.norm = nn.Embedding(40, 16), nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, ids):
        x = self.table(ids)
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        return x + nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def conv_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )  # fmt: skip


PICTURE, SEQUENCE, IDS = torch.zeros(1, 3, 16, 16), torch.zeros(1, 5, 6), torch.zeros(1, 8, dtype=torch.int64)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    return tmp_path


def export(module: nn.Module, example: torch.Tensor, opset: int = 17, **more) -> None:
    names = {"input_names": ["x"], "output_names": ["y"], "dynamo": False, **more}
    torch.onnx.export(module.eval(), (example,), "net.onnx", opset_version=opset, **names)


def build(**option):
    from ane_sweep.worker.models import onnx as door

    source = onnx_files.resolve({"name": "onnx", "path": "net.onnx", **option}, "pretrained", 0, Path("digests.json"))
    return door.build_given({"model": {"arch": source.arch}}, dict(source.beside)), source


def worst_error(module) -> float:
    """Return the largest difference from onnxruntime, as a share of the largest output."""
    with torch.inference_mode():
        pairs = list(zip(module(*module.example), module.compute_reference(*module.example), strict=True))
    return max(float((ours - theirs).abs().max() / theirs.abs().max()) for ours, theirs in pairs)


@needs_extra
@pytest.mark.parametrize(
    ("make", "example", "opset"),
    [
        (conv_net, PICTURE, 9),
        (conv_net, PICTURE, 17),
        (Block, IDS, 14),
        (lambda: Steps(nn.LSTM), SEQUENCE, 17),
        (lambda: Steps(nn.LSTM, bidirectional=True, bias=False), SEQUENCE, 12),
        (lambda: Steps(nn.GRU, bidirectional=True), SEQUENCE, 17),
    ],
)
def test_an_exported_net_computes_what_onnxruntime_computes(here, make, example, opset):
    export(make(), example, opset)
    module, _ = build()
    assert worst_error(module) < TOLERANCE
    assert [port.name for port in module.ports.inputs] == ["x"] and [port.name for port in module.ports.outputs] == [
        "y"
    ]


@needs_extra
@pytest.mark.parametrize(("direction", "opset"), [("reverse", 14), ("forward", 21)])
def test_a_recurrent_node_with_all_outputs_and_states_is_exact(here, direction, opset):
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    weights = {"w": (1, 16, 3), "r": (1, 16, 4), "b": (1, 32), "c": (1, 2, 4)}
    held = [
        numpy_helper.from_array(random.standard_normal(shape).astype("f4"), name) for name, shape in weights.items()
    ]
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "", "h", "c"], ["y", "yh", "yc"], hidden_size=4, direction=direction
    )
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in
             {"x": [5, 2, 3], "h": [1, 2, 4], "y": [5, 1, 2, 4], "yh": [1, 2, 4], "yc": [1, 2, 4]}.items()]  # fmt: skip
    graph = helper.make_graph([node], "g", ports[:2], ports[2:], held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), "net.onnx")
    assert worst_error(build()[0]) < TOLERANCE


@needs_extra
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_an_op_of_a_newer_opset_is_one_op_of_torch(here, approximate):
    import onnx
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 8]) for name in ("x", "y")]
    node = helper.make_node("Gelu", ["x"], ["y"], name="gelu", approximate=approximate)
    graph = helper.make_graph([node], "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), "net.onnx")
    module, _ = build()
    assert worst_error(module) < TOLERANCE and any(isinstance(one, nn.GELU) for one in module.modules())


@needs_extra
def test_a_dynamic_axis_asks_for_its_size_and_takes_it(here):
    export(conv_net(), PICTURE, dynamic_axes={"x": {0: "batch"}})
    with pytest.raises(
        ConfigError, match=r"with no size for batch; give sizes, as in 'model.inputs=\{x: \[1, 3, 16, 16\]\}'"
    ):
        build()
    with pytest.raises(ConfigError, match=r"model.inputs.image: model.path=net.onnx takes x"):
        build(inputs={"x": [1, 3, 16, 16], "image": [1]})
    module, _ = build(inputs={"x": [2, 3, 16, 16]})
    assert module.ports.outputs[0].shape == (2, 5) and worst_error(module) < TOLERANCE


@needs_extra
def test_ids_are_drawn_from_the_table_in_which_they_are_looked_up(here):
    export(Block(), IDS)
    assert build()[1].arch["inputs"]["x"] == {"dtype": "int64", "shape": [1, 8], "range": [0, 40]}


@needs_extra
def test_a_quantised_net_keeps_its_weights_and_the_ranges_of_its_activations(here):
    from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):
        def __init__(self):
            self.rows = iter(
                [{"x": np.random.default_rng(n).standard_normal(PICTURE.shape, np.float32)} for n in range(8)]
            )

        def get_next(self):
            return next(self.rows, None)

    export(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), PICTURE)
    quantization.quantize_static("net.onnx", "net.onnx", Reader())
    module, source = build()
    assert "is quantised (QDQ)" in source.notes[0]
    assert worst_error(module) < 8 / 255  # some steps of 8 bits, of the largest number; without the Relu it is half


@needs_extra
def test_weights_beside_the_file_are_in_its_key_and_missed(here):
    import onnx

    export(conv_net(), PICTURE)
    onnx.save(onnx.load("net.onnx"), "net.onnx", save_as_external_data=True, location="net.bin", size_threshold=0)
    module, source = build()
    assert set(source.arch["files"]) == {"net.onnx", "net.bin"} and worst_error(module) < TOLERANCE
    Path("net.bin").unlink()
    with pytest.raises(ConfigError, match=r"weights are in other files, which are missing: .*net.bin"):
        build()


@needs_extra
def test_all_ops_without_a_conversion_are_named_with_their_nodes_before_anything_runs(here, capsys):
    import onnx
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Det", ["x"], ["a"], name="first"), helper.make_node("Bernoulli", ["a"], ["b"], name="second"),
             helper.make_node("Scale", ["b"], ["y"], name="third", domain="theirs")]  # fmt: skip
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("x", "y")]
    sets = [helper.make_opsetid("", 15), helper.make_opsetid("theirs", 1)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), "net.onnx")
    assert main(["plan", "model=onnx", "model.path=net.onnx"]) == 2
    said = capsys.readouterr()
    assert "op Det has no conversion to torch; its nodes: first" in said.err + said.out
    assert "op theirs.Scale has no conversion to torch; its nodes: third" in said.err + said.out


@needs_extra
def test_an_option_that_torch_lacks_is_refused_with_its_node(here):
    import onnx

    export(Steps(nn.GRU), SEQUENCE)
    model = onnx.load("net.onnx")
    for node in model.graph.node:
        if node.op_type == "GRU":
            del node.attribute[[one.name for one in node.attribute].index("linear_before_reset")]
    onnx.save(model, "net.onnx")
    with pytest.raises(StageError, match=r"GRU.*linear_before_reset=0 has no conversion"):
        build()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        pytest.param(b"not a message\xff\xff", "is no ONNX file", marks=needs_extra),
        pytest.param(b"", "is no ONNX file", marks=needs_extra),
    ],
)
def test_a_file_that_is_no_onnx_file_is_refused(here, content, reason):
    if content is not None:
        Path("net.onnx").write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        onnx_files.read(Path("net.onnx"), "model.path=net.onnx")


def test_a_missing_extra_is_named_with_the_command(here, monkeypatch):
    Path("net.onnx").write_bytes(b"x")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnx2torch" else found(name))
    with pytest.raises(ConfigError, match=r"needs .*onnx2torch.*; install them: pip install 'ane-sweep\[onnx\]'"):
        onnx_files.read(Path("net.onnx"), "model.path=net.onnx")


@needs_extra
@pytest.mark.slow
def test_a_sweep_over_an_onnx_file_scores_against_onnxruntime(here, capsys):
    export(Steps(nn.LSTM), SEQUENCE)
    words = [
        "model=onnx",
        "model.path=net.onnx",
        "variant=original,split_einsum",
        "latency=off",
        "runtime=reference",
        "out=o",
    ]
    assert main(["-m", *words, "tracking.enabled=false"]) == 0
    said = capsys.readouterr()
    assert "2 cells, 2 ok" in said.out + said.err
