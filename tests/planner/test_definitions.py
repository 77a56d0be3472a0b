"""What model.path names is refused before anything runs where its file says that it cannot be built; what is not certain passes."""

from pathlib import Path

import pytest

from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.planner import definitions, unread

NETS = """
import torch
import parts
from functools import cache
from torch import nn
from parts import Base, Kept

if torch:
    class Net(nn.Module):
        def __init__(self, width=8, *, depth):
            super().__init__()

        def forward(self, x, mask=None):
            return x


class Free(nn.Module):
    def forward(self, a, b, *, scale=1):
        return a

class Open(Base):
    def __init__(self, **kwargs):
        super().__init__()

    def forward(self, *inputs, **more):
        return inputs[0]

class Plain:
    pass

class Plainer(Plain):
    def forward(self, x):
        return x

class Maker:
    def __new__(cls):
        return nn.Linear(4, 4), torch.zeros(1, 4)

def nothing():
    Net(depth=3)

def bare(): return Net(depth=3)
def named(size):
    net = nn.Linear(size, size)
    return net
def pair(): return Net(depth=3), torch.zeros(1, 4)
def told() -> nn.Module: return parts.made()
def unknown(): return parts.made()
@cache
def wrapped(a, b): return Net(depth=a)
def raising(): raise NotImplementedError

net = bare()
WIDTH = 64
"""
INPUTS = {"x": [1, 4]}
REFUSED = {
    "no such name": ("Nett", {}, INPUTS, r"nets.py has no 'Nett' \(did you mean 'Net'\?\); it has: Free, Maker, Net, Open, Plain"),
    "no module": ("Plain", {}, INPUTS, "Plain is a class that is no torch.nn.Module"),
    "no module among its bases": ("Plainer", {}, INPUTS, "Plainer is a class that is no torch.nn.Module"),
    "a value": ("WIDTH", {}, INPUTS, "WIDTH is a value; expected a torch.nn.Module"),
    "returns nothing": ("nothing", {}, INPUTS, "nothing returns nothing"),
    "a class without inputs": ("Net", {"depth": 1}, None, r"say them: model.inputs=.*forward takes \(x, mask=None\)"),
    "a function without inputs": ("bare", {}, None, "bare gives a module and no inputs for it"),
    "a name without inputs": ("named", {"size": 4}, None, "named gives a module and no inputs for it"),
    "an annotation without inputs": ("told", {}, None, "told gives a module and no inputs for it"),
    "an argument too many": ("Net", {"depth": 1, "wdth": 3}, INPUTS, r"takes no wdth of model.kwargs; it takes \(width, depth\)"),
    "an argument too few": ("Net", {}, INPUTS, r"needs depth: model.kwargs=\{depth: VALUE\}"),
    "an argument of a function": ("named", {}, INPUTS, "needs size"),
    "an input too many": ("Net", {"depth": 1}, {"x": [1], "z": [1]}, r"has no input z: forward takes \(x, mask=None\)"),
    "an input too few": ("Free", {}, {"a": [1]}, r"lacks inputs: b; forward takes \(a, b, \*, scale=1\)"),
    "an input too few in order": ("Free", {}, {"left": [1]}, "lacks inputs: b"),
    "inputs too many in order": ("Free", {}, {name: [1] for name in "tuvw"}, "has 4 inputs in model.inputs"),
}  # fmt: skip
PASSES = [
    ("Net", {"depth": 1}, INPUTS), ("Net", {"depth": 1}, {"first": [1], "second": [1]}), ("Free", {}, {"a": [1], "b": [1]}),
    ("Open", {"any": 1}, {"x": [1], "y": [1], "z": [1]}), ("Maker", {}, None), ("pair", {}, None), ("unknown", {}, None),
    ("unknown", {}, INPUTS), ("wrapped", {}, INPUTS), ("raising", {}, INPUTS), ("net", {}, INPUTS), ("net", {}, None),
    ("Base", {}, INPUTS), ("Kept", {}, INPUTS), ("Net.inner", {}, None), ("told", {}, INPUTS),
]  # fmt: skip


@pytest.fixture
def nets(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("parts.py").write_text("from torch.nn import *\nBase = Module\n")
    Path("nets.py").write_text(NETS)
    return Path("nets.py").absolute()


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_built_is_refused(nets, what):
    name, kwargs, inputs, said = REFUSED[what]
    with pytest.raises(ConfigError, match=f"model.path=nets.py:{name}: .*{said}"):
        definitions.check(f"nets.py:{name}", nets, kwargs, inputs)
    with pytest.raises(ConfigError, match=said):
        definitions.check(f"nets:{name}", None, kwargs, inputs)


@pytest.mark.parametrize("case", PASSES)
def test_what_may_be_built_is_left_to_the_worker(nets, case):
    name, kwargs, inputs = case
    definitions.check(f"nets.py:{name}", nets, kwargs, inputs)


def test_what_is_imported_by_a_star_is_found_where_it_stands(nets):
    Path("pkg/deep").mkdir(parents=True)
    Path("pkg/__init__.py").write_text("from .deep import *\n")
    Path("pkg/deep/__init__.py").write_text("from .nets import *\nfrom .other import *\n")
    Path("pkg/deep/other.py").touch()
    Path("pkg/deep/nets.py").write_text(NETS)
    with pytest.raises(ConfigError, match="Net brings no inputs"):
        definitions.check("pkg:Net", None, {"depth": 1}, None)
    definitions.check("pkg:Net", None, {"depth": 1}, INPUTS)
    definitions.check("pkg:Nett", None, {}, INPUTS)  # a star may bring more than can be read


@pytest.mark.parametrize("text", ["", "def f(:", "from nets import Net\nfrom nets import *\n", "x = 1\n" * 10])
def test_a_file_that_cannot_be_read_so_is_left_to_the_worker(nets, text):
    nets.write_text(text + "\nglobals().update(Net=1)\n")
    definitions.check("nets.py:Net", nets, {}, INPUTS)


def test_plan_refuses_at_once_and_nothing_is_run(nets, capsys):
    assert main(["plan", "model=module", "model.path=nets.py:Net", "model.kwargs={depth: 1}"]) == 2
    assert "brings no inputs; say them" in capsys.readouterr().err
    assert main(["plan", "model=module", "model.path=nets.py:Nett", "model.inputs={x: [1,4]}"]) == 2


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("nets.py:Net", "model=module model.path=nets.py:Net 'model.inputs={NAME: [1,3,224,224]}'"),
        ("./nets.py:Net", "model=module model.path=./nets.py:Net"),
        ("nets.py", "model=module model.path=nets.py:NAME"),
        ("nets/mine.py:Net", "model=module model.path=nets/mine.py:Net"),
        ("nets/mine.py", "model=module model.path=nets/mine.py:NAME"),
        ("nets:Net", "model=module model.path=nets:Net"),
        ("torchvision.models:resnet50", "model=module model.path=torchvision.models:resnet50"),
        ("resnet50", "model=module model.path=torchvision.models:resnet50 'model.inputs={x: [1,3,224,224]}'"),
        ("mobilenet_v3_small", "model=module model.path=torchvision.models:mobilenet_v3_small"),
        ("x.mlpackage", "model=package model.path=x.mlpackage"),
    ],
)
def test_what_is_meant_by_a_file_or_a_name_of_torchvision_is_advised(name, advice, capsys):
    said = unread.unknown_option("model", name, ["bert", "module"])
    assert said.startswith(f"model={name}: unknown") and advice in said and ".yaml" not in said
    assert main(["plan", f"model={name}"]) == 2
    assert advice in capsys.readouterr().err


def test_another_unknown_model_is_advised_as_before():
    assert ".yaml" in unread.unknown_option("model", "bret", ["bert"])
    assert "'bert'" in unread.unknown_option("model", "bret", ["bert"])
