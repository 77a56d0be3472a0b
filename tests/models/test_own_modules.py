"""model=module: code of the user's own is found without being run, built in the worker, and ends in a sentence whatever it does."""

import json
import random
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from nets import computed
from placement.by_hand import conv_chain
from safetensors.torch import save_file

from ane_sweep.bridge.cell import digest
from ane_sweep.bridge.task import DRAWN
from ane_sweep.errors import ConfigError, StageError, WeightsError
from ane_sweep.planner import modules, packages
from ane_sweep.worker.models import _mapped
from ane_sweep.worker.models import module as family
from ane_sweep.worker.stages import reference

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x):
        for layer in self.layers:
            x = x + torch.relu(layer(x))
        return x
"""
LOADED = "Net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))\n"
HEAD = "import os, sys, torch\nfrom torch import nn\nLAYER = nn.Linear(4, 4)\n"


@pytest.fixture(autouse=True)
def the_process_is_as_before(monkeypatch, tmp_path_factory):
    """A worker is a process of its own and may be changed; this one is not."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    monkeypatch.setattr(sys, "pycache_prefix", sys.pycache_prefix)
    folder = str(tmp_path_factory.getbasetemp())
    before, kept = set(sys.modules), (torch.get_rng_state(), np.random.get_state(), random.getstate())
    yield
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
            del sys.modules[name]
    torch.set_rng_state(kept[0])
    np.random.set_state(kept[1])
    random.setstate(kept[2])


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settled(path: str, weights: str = "pretrained", seed: int = 0, **option):
    option = {"name": "module", "path": path, **option}
    return modules.resolve(option, weights, seed, Path("digests.json"))


def params(source, seed: int = 0, count: int = 2):
    weights = {"kind": source.kind, "digest": source.digest, "allow_pickle": False, "seed": seed}
    texts = {"count": count, "seed": seed, "text": "x", "tokenizer": None}
    model = {"family": "module", "task": "tensors", "arch": dict(source.arch)}
    return {"model": model, "weights": weights, "seq_len": 0, "texts": texts}


def built(code: str, inputs=None, name: str = "Net", **more) -> family.OwnModule:
    Path("nets.py").write_text(code)
    source = settled(f"nets.py:{name}", inputs={"x": [1, 4]} if inputs is None else inputs, **more)
    return family.build_given(params(source, more.get("seed", 0)), dict(source.beside))


def forward(body: str, takes: str = "x") -> str:
    return f"{HEAD}class Net(nn.Module):\n    def forward(self, {takes}):\n        {body}\n"


def test_a_class_of_a_few_lines_is_a_model(here):
    module = built(NET, kwargs={"depth": 3})
    (port,), (out,) = module.ports.inputs, module.ports.outputs
    assert (port.name, port.shape, port.dtype) == ("x", (1, 4), "float32")
    assert (out.name, out.shape) == ("output", (1, 4)) and len(module.inner.layers) == 3
    x = torch.rand(1, 4)
    assert torch.equal(module(x)[0], module.inner(x)) and not module.training


def test_planning_runs_none_of_it(here):
    Path("nets.py").write_text("import pathlib\npathlib.Path('ran').touch()\n" + NET)
    settled("nets.py:Net", inputs={"x": [1, 4]})
    assert not Path("ran").exists()
    built("import pathlib\npathlib.Path('ran').touch()\n" + NET)
    assert Path("ran").exists()  # in the worker it is


@pytest.mark.parametrize(
    ("takes", "inputs", "by_name"),
    [("a, b", ["b", "a"], True), ("a, b", ["left", "right"], False), ("*all", ["one", "two"], False),
     ("a, **more", ["a", "other"], True)],
)  # fmt: skip
def test_inputs_go_by_name_where_forward_knows_them_and_in_order_where_it_knows_none(here, takes, inputs, by_name):
    body = {"a, b": "return a - b", "*all": "return all[0] - all[1]", "a, **more": "return a - more['other']"}[takes]
    module = built(forward(body, takes), {name: [1, 4] for name in inputs})
    first, second = torch.ones(1, 4), torch.zeros(1, 4)
    assert module.by_name is by_name
    assert module(first, second)[0].sum() == (-4 if inputs[0] == "b" else 4)


@pytest.mark.parametrize("inputs", [{"a": [1, 4], "c": [1, 4]}, {"x": [1, 4], "y": [1, 4], "z": [1, 4]}])
def test_inputs_that_forward_cannot_take_are_told_with_what_it_takes(here, inputs):
    with pytest.raises(StageError, match=r"its inputs are .*, and forward takes \(a, b\)"):
        built(forward("return a", "a, b"), inputs)


ENCODER = "nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)"
ATTENTION = {
    "attention": (f"{HEAD}class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
                  "        self.all = nn.MultiheadAttention(16, 4, batch_first=True)\n    def forward(self, x): return self.all(x, x, x)"),
    "a layer": f"{HEAD}Net = {ENCODER}",
    "norms first": f"{HEAD}Net = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, activation='gelu')",
    "an encoder": f"{HEAD}Net = nn.TransformerEncoder({ENCODER}, 2)",
    "a padding mask": (f"{HEAD}class Net(nn.TransformerEncoder):\n    def __init__(self): super().__init__({ENCODER}, 2)\n"
                       "    def forward(self, x): return super().forward(x, src_key_padding_mask=x[..., 0] > 0)"),
    "a decoder": (f"{HEAD}class Net(nn.Transformer):\n    def __init__(self): super().__init__(16, 4, 1, 1, 32, batch_first=True)\n"
                  "    def forward(self, x): return super().forward(x, x)"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("what", ATTENTION)
def test_attention_in_eval_mode_converts_and_computes_the_same(here, what):
    """Torch takes one op of its own for it, which coremltools lacks."""
    module = built(ATTENTION[what], {"x": [2, 6, 16]})
    made = computed(here, module, module.example[0])
    expected = module(module.example[0])[0].detach().numpy()
    assert np.abs(expected).min() > 0 and np.allclose(next(iter(made.values())), expected, atol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()


def test_outputs_are_named_by_their_keys(here):
    body = "return {'a.b': x, 'p': P(x + 1, None), 'l': [x > 0, (x * 3).long()]}"
    module = built(f"import collections\nP = collections.namedtuple('P', 'u v')\n{forward(body)}")
    assert [(port.name, port.dtype) for port in module.ports.outputs] == [
        ("a_b", "float32"), ("p_u", "float32"), ("l_0", "int32"), ("l_1", "int32")
    ]  # fmt: skip


def test_a_module_that_is_there_already_and_one_that_comes_with_its_inputs(here):
    assert built(f"{HEAD}net = nn.Sequential(LAYER)", {"input": [1, 4]}, "net").by_name
    code = f"{HEAD}def make(): return LAYER, {{'input': torch.full((2, 4), 7.0)}}"
    Path("nets.py").write_text(code)
    source = settled("nets.py:make", inputs=None)
    module = family.build_given(params(source), dict(source.beside))
    assert module.ports.inputs[0].shape == (2, 4) and module.example[0].unique().tolist() == [7.0]


HOSTILE = {
    "raises when imported": ("raise KeyError('no part')", r"importing it raised KeyError: 'no part' \(nets.py line 1,"),
    "syntax error": ("def f(:\n  pass", r"importing it raised SyntaxError: .* \(nets.py line 1\)"),
    "no such attribute": ("class Nets: pass", r"nets.py has no 'Net'; it has: Nets"),
    "lacks a package": ("import not_there_at_all", r"ModuleNotFoundError.*not_there_at_all is neither installed nor in the file's folder"),
    "relative import": ("from .b import c", r"ImportError.*give it as model.path=PACKAGE.MODULE:NAME"),
    "raises when built": (f"{HEAD}def Net(): raise ValueError('no')", r"calling it raised ValueError: no \(nets.py line 4, in Net\)"),
    "raises when called": (forward("raise ValueError('cannot')"), r"its forward raised ValueError: cannot \(nets.py line 6, in forward\)"),
    "exits": (forward("sys.exit(3)"), r"its forward called sys.exit\(3\) \(nets.py line 6"),
    "exits when imported": ("import sys; sys.exit()", r"importing it called sys.exit\(None\)"),
    "a base exception": (forward("raise GeneratorExit"), r"its forward raised GeneratorExit"),
    "wants a GPU": (f"{HEAD}def Net(): return LAYER.cuda()", r"it asks for a GPU, and it is built and traced on the CPU"),
    "on another device": (f"{HEAD}def Net(): return nn.Linear(4, 4, device='meta')", r"parameters are on meta; it is traced on the CPU"),
    "a scripted one": (f"{HEAD}def Net(): return torch.jit.script(LAYER)", r"gave a program of TorchScript.*model=exported"),
    "an exported one": (
        f"{HEAD}def Net(): return torch.export.export(LAYER, (torch.ones(1, 4),)).module()", r"gave a program of Torch.*model=exported"
    ),
    "no module": ("def Net(): return 5", r"gave a int; expected a torch.nn.Module"),
    "needs arguments": ("def Net(depth): return depth", r"calling it raised TypeError: .*'depth'"),
    "needs an input": (forward("return x + y", "x, y"), r"its forward raised TypeError: .*'y'"),
    "gives a text": (forward("return 'hello'"), r"its forward gave a str \(as its output\); expected tensors"),
    "gives nothing": (forward("return None"), r"its forward gave no tensor"),
    "edits its own file": (forward("open(__file__, 'a').write('#'); return x"), r"nets.py has changed since .* or it changes"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_what_it_does_wrong_is_one_sentence(here, what):
    code, said = HOSTILE[what]
    with pytest.raises(StageError, match=f"model.path=nets.py:Net.*{said}") as caught:
        built(code)
    assert "\n" not in str(caught.value)


UNFIT = {
    "resizes": "LAYER.weight.data = torch.empty(2).resize_(4, 4).normal_()",
    "gives room to a result": "LAYER.weight.data = torch.cat([torch.randn(2, 4)] * 2, out=torch.empty(1))",
    "frees a tensor": "torch.randn(5).untyped_storage().resize_(0)",
    "forks a process that writes": (
        "torch.randn(1)\n    if (pid := os.fork()) == 0:\n        LAYER.weight.data.zero_()\n        os._exit(0)\n    os.waitpid(pid, 0)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_code_that_tensors_in_files_do_not_suit_is_built_in_memory(here, what, monkeypatch):
    code = f"{HEAD}def Net():\n    LAYER = nn.Linear(4, 4)\n    {UNFIT[what]}\n    return LAYER\n"
    plain = built(code)
    monkeypatch.setattr(_mapped, "LARGE", 0)
    monkeypatch.setattr(_mapped, "_PART", 1)
    module = built(code)
    assert module.weights_digest() == plain.weights_digest() and plain.inner.weight.any()
    source = settled("nets.py:Net", inputs={"x": [1, 4]})
    assert family.find_drawn_weights(params(source), dict(source.beside), module) == ["weight", "bias"]


def test_the_line_is_the_users_not_torchs(here):
    with pytest.raises(StageError, match=r"RuntimeError: mat1 and mat2.* \(nets.py line 6, in forward\)"):
        built(forward("return LAYER(x)"), {"x": [1, 5]})


def test_no_inputs_are_told_with_what_forward_takes(here):
    Path("nets.py").write_text(NET)
    source = settled("nets.py:Net", inputs=None)
    with pytest.raises(StageError, match=r"no inputs for it; say them: model.inputs=.* where forward takes \(x\)"):
        family.build_given(params(source), dict(source.beside))


def test_outputs_that_are_no_numbers_are_told_with_what_to_give(here):
    Path("nets.py").write_text(forward("return x.log()"))
    source = settled("nets.py:Net", inputs={"x": {"shape": [1, 4], "range": [-2, -1]}})
    with pytest.raises(
        StageError, match=r"'output' of input 0 holds 4 values that are NaN or infinite .* range in model.inputs"
    ):
        reference.run(params(source), dict(source.beside), here)


class TestWeights:
    def test_own_weights_follow_the_seed(self, here):
        one, same = built(NET), built(NET)
        source = settled("nets.py:Net", seed=1, inputs={"x": [1, 4]})
        other = family.build_given(params(source, seed=1), dict(source.beside))
        first = [net.inner.layers[0].weight for net in (one, same, other)]
        assert torch.equal(first[0], first[1]) and not torch.equal(first[0], first[2])
        assert source.digest != settled("nets.py:Net", seed=0).digest and source.kind == "own"
        assert one.weights_digest() == same.weights_digest() != other.weights_digest()

    @pytest.mark.parametrize(
        ("code", "said"),
        [
            (NET, "4 of 4 parameters are random numbers, drawn by the module's own code"),
            (f"{HEAD}net = nn.Linear(4, 4)\ndef Net(): return net", "2 of 2 parameters are random numbers"),
            (f"{NET}\n    def __new__(cls):\n        net = super().__new__(cls)\n        return net", "4 of 4"),
            (f"{HEAD}{LOADED}Net.load_state_dict({{k: torch.ones_like(v) for k, v in Net.state_dict().items()}})", None),
            (f"{HEAD}{LOADED}Net[0].load_state_dict({{'weight': torch.ones(4, 4), 'bias': torch.ones(4)}})",
             "2 of 4 parameters (1.weight, 1.bias) are random numbers"),
            (f"{HEAD}Net = nn.Softmax(-1)", None),
            (f"{HEAD}import torch\ndef Net():\n    torch.manual_seed(0)\n    return nn.Linear(4, 4)", "2 of 2"),
        ],
    )  # fmt: skip
    def test_a_record_says_how_many_the_code_draws(self, here, code, said):
        Path("nets.py").write_text(code)
        source = settled("nets.py:Net", inputs={"x": [1, 4]})
        found = reference.run(params(source), dict(source.beside), here).realised.get(DRAWN)
        assert found is None if said is None else found.startswith(said)

    def test_a_record_says_it_of_no_weights_that_were_asked_for(self, here):
        Path("nets.py").write_text(NET)
        source = settled("nets.py:Net", "random", inputs={"x": [1, 4]})
        assert DRAWN not in reference.run(params(source), dict(source.beside), here).realised

    def test_a_file_is_taken_whole_or_not_at_all(self, here):
        Path("nets.py").write_text(NET)
        state = {
            f"layers.{n}.{kind}": torch.full((4, 4) if kind == "weight" else (4,), 0.5)
            for n in (0, 1)
            for kind in ("weight", "bias")
        }
        save_file(state, "w.safetensors")
        source = settled("nets.py:Net", "w.safetensors", inputs={"x": [1, 4]})
        module = family.build_given(params(source), dict(source.beside))
        assert source.kind == "path" and module.inner.layers[1].bias.tolist() == [0.5] * 4
        wrong = {
            "lacks layers.1.bias": {name: one for name, one in state.items() if name != "layers.1.bias"},
            "holds, and the module does not, extra": {**state, "extra": torch.zeros(1)},
            r"of another shape: layers.0.bias is \[5\], not \[4\]": {**state, "layers.0.bias": torch.zeros(5)},
        }
        for said, tensors in wrong.items():
            save_file(tensors, "w.safetensors")
            source = settled("nets.py:Net", "w.safetensors", inputs={"x": [1, 4]})
            with pytest.raises(WeightsError, match=said):
                family.build_given(params(source), dict(source.beside))

    def test_random_weights_keep_what_flows_through_batch_norms_of_one_size(self, here):
        body = "[nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()) for _ in range(20)]"
        Path("nets.py").write_text(f"{HEAD}def Net(): return nn.Sequential(*{body})")
        sizes = {}
        for weights in ("pretrained", "random"):
            source = settled("nets.py:Net", weights, inputs={"input": [1, 8, 16, 16]})
            module = family.build_given(params(source), dict(source.beside))
            sizes[weights] = float(module(*module.example)[0].std())
            assert not any(one.training for one in module.modules())
        assert sizes["pretrained"] < 0.01 < 0.1 < sizes["random"] < 10

    @pytest.mark.parametrize(
        ("weights", "said"),
        [
            ("w.bin", "a .safetensors file, random, or nothing"),
            ("none.safetensors", "no such file"),
            ("cut.safetensors", "no whole safetensors"),
        ],
    )
    def test_what_is_no_file_of_weights_stops_before_anything_runs(self, here, weights, said):
        Path("nets.py").write_text(NET)
        Path("w.bin").touch()
        Path("cut.safetensors").write_bytes(b"abc")
        with pytest.raises(ConfigError, match=said):
            settled("nets.py:Net", weights, inputs={"x": [1, 4]})


class TestKey:
    def key(self, path="nets.py:Net", **option) -> str:
        return digest(dict(settled(path, **option).arch))

    def test_it_is_made_of_every_file_that_is_imported(self, here):
        Path("pkg/deep").mkdir(parents=True)
        for name in ("pkg/__init__.py", "pkg/deep/__init__.py"):
            Path(name).touch()
        Path("pkg/nets.py").write_text("from .deep.parts import WIDTH\nfrom . import other\nimport helper\n" + NET)
        for name in ("pkg/deep/parts.py", "pkg/other.py", "helper.py", "unused.py"):
            Path(name).write_text("WIDTH = 4\n")
        found = settled("pkg.nets:Net")
        assert set(found.arch["files"]) == {"pkg", "pkg.nets", "pkg.deep", "pkg.deep.parts", "pkg.other", "helper"}
        assert found.arch["packages"] == {"torch": metadata.version("torch")}
        before = self.key("pkg.nets:Net")
        Path("unused.py").write_text("WIDTH = 5\n")
        assert self.key("pkg.nets:Net") == before
        Path("pkg/deep/parts.py").write_text("WIDTH = 5\n")
        assert self.key("pkg.nets:Net") != before

    def test_it_is_the_same_in_another_folder_and_another_one_with_other_arguments(self, here, monkeypatch):
        Path("nets.py").write_text(NET)
        before = self.key(kwargs={"depth": 2}, inputs={"x": [1, 4]})
        assert before != self.key(kwargs={"depth": 3}, inputs={"x": [1, 4]})
        assert before != self.key(kwargs={"depth": 2}, inputs={"x": [1, 8]})
        elsewhere = here / "elsewhere"
        elsewhere.mkdir()
        (elsewhere / "nets.py").write_text(NET)
        assert self.key(str(elsewhere / "nets.py:Net"), kwargs={"depth": 2}, inputs={"x": [1, 4]}) == before

    def test_what_is_imported_by_name_at_run_time_is_refused_until_it_is_told(self, here):
        Path("part.py").write_text("WIDTH = 4\n")
        code = "import importlib\nimportlib.import_module('pa' + 'rt')\n" + NET
        with pytest.raises(StageError, match=r"imports part \(.*part.py\) in a way that is not seen .*model.sources="):
            built(code)
        del sys.modules["part"]
        assert built(code, sources=["part.py"]).ports.outputs

    def test_a_file_that_changed_since_it_was_planned_is_refused(self, here):
        Path("nets.py").write_text(NET)
        source = settled("nets.py:Net", inputs={"x": [1, 4]})
        Path("nets.py").write_text(NET + "\n")
        with pytest.raises(StageError, match=r"nets.py has changed since this was planned.*plan anew"):
            family.build_given(params(source), dict(source.beside))

    def test_what_was_compiled_earlier_is_not_used_and_nothing_is_left_beside_it(self, here):
        built(NET)
        assert sorted(path.name for path in here.iterdir()) == ["nets.py"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (None, "expected FILE.py:NAME"),
        ("nets.py", "expected FILE.py:NAME"),
        ("nets.py:", "expected FILE.py:NAME"),
        ("none.py:Net", "no such file"),
        ("no_such_package.nets:Net", "no such module"),
        ("a-b.nets:Net", "neither a file"),
    ],
)
def test_a_path_that_leads_nowhere_stops_before_anything_runs(here, path, said):
    with pytest.raises(ConfigError, match=said):
        settled(path)


def test_a_package_leaves_its_outputs_in_fp32_and_nothing_of_it_is_unseen(here):
    source = packages.resolve(
        {"name": "package", "path": str(conv_chain(here / "x.mlpackage", 2))}, "pretrained", 0, Path("d.json")
    )
    wish = params(source)
    result = reference.run({**wish, "model": {**wish["model"], "family": "package"}}, dict(source.beside), here)
    assert (here / "outputs.npz").is_file() and "weights" not in result.facts and "unseen" not in result.realised


class TestReference:
    def leave(self, code, inputs, **option):
        Path("nets.py").write_text(code)
        source = settled("nets.py:Net", inputs=inputs, **option)
        out = Path("out")
        out.mkdir(exist_ok=True)
        return reference.run(params(source, count=3), dict(source.beside), out), out

    def test_each_shape_has_inputs_and_outputs_of_its_own(self, here):
        result, out = self.leave(forward("return x.sum(1)"), {"x": [1, "2..6"]})
        assert "data files, environment, network" in result.realised["unseen"]
        assert {path.name for path in out.iterdir()} == {
            "inputs.npz", "outputs.npz", "calibration.npz", "inputs@1x2.npz", "outputs@1x2.npz", "inputs@1x4.npz", "outputs@1x4.npz"
        }  # fmt: skip
        with np.load(out / "inputs@1x4.npz") as given, np.load(out / "outputs@1x4.npz") as made:
            assert given["x"].shape == (3, 1, 4)
            assert np.allclose(given["x"].sum(2), made["output"], atol=1e-6)

    def test_numbers_are_drawn_from_their_range(self, here):
        spec = {"x": {"shape": [1, 500], "dtype": "int64", "range": [3, 6]}, "y": {"shape": [1, 500], "range": [2, 3]}}
        _, out = self.leave(forward("return x + y", "x, y"), spec)
        with np.load(out / "inputs.npz") as given:
            assert set(given["x"].ravel()) == {3, 4, 5} and given["x"].dtype == np.int32
            assert given["y"].min() >= 2 and given["y"].max() <= 3
            assert not np.array_equal(given["y"][0], given["y"][1])

    def test_samples_of_the_users_own_are_scored(self, here):
        np.savez("mine.npz", x=np.arange(20, dtype=np.float64).reshape(5, 1, 4))
        result, out = self.leave(forward("return x * 2"), {"x": [1, 4]}, samples="mine.npz")
        with np.load(out / "inputs.npz") as given, np.load(out / "calibration.npz") as rest:
            assert given["x"].shape == (3, 1, 4) and given["x"][2, 0, 3] == 11
            assert rest["x"].shape == (2, 1, 4)
        assert result.realised["texts"] == "samples"

    @pytest.mark.parametrize(
        ("arrays", "said"),
        [({"y": np.ones((2, 1, 4))}, "holds y; the module takes x"), ({"x": np.ones((2, 4))}, r"expected \[count, 1, 4\]"),
         ({"x": np.full((2, 1, 4), np.nan)}, "holds NaN"), ({"x": np.ones((0, 1, 4))}, "one at least"),
         ({"x": np.array([{}], dtype=object)}, "no .npz of plain arrays")],
    )  # fmt: skip
    def test_samples_that_do_not_fit_are_told(self, here, arrays, said):
        np.savez("mine.npz", **arrays)
        with pytest.raises(StageError, match=said):
            self.leave(forward("return x"), {"x": [1, 4]}, samples="mine.npz")


def test_what_is_told_of_a_module_is_plain_json(here):
    Path("nets.py").write_text(NET)
    json.dumps(settled("nets.py:Net", inputs={"x": [1, 4]}).arch)
