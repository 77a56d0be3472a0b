"""Modules of a user's own, converted as `model=module` converts them: grown where their blocks repeat, the same bytes always."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ane_sweep.planner import modules
from tests.bench import growing
from tests.grow import strangers


@pytest.fixture
def both(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("nets.py").write_text(Path(strangers.__file__).read_text())

    def ways(name: str, compute: str = "fp16") -> growing.Found:
        option = {"name": "module", "path": "nets.py:made", "kwargs": {"name": name}}
        source = modules.resolve({**option, "inputs": {"x": strangers.shape(name)}}, "pretrained", 0, Path("d.json"))
        params = {
            "model": {"family": "module", "task": "tensors", "arch": dict(source.arch)}, "seq_len": 0, "compute": compute,
            "weights": {"kind": source.kind, "digest": source.digest, "allow_pickle": False, "seed": 0}, "target": "iOS18",
            "texts": {"count": 2, "seed": 0, "text": "x", "tokenizer": None}, "variant": "original", "options": {},
        }  # fmt: skip
        return growing.both_ways(params, dict(source.beside), always=False, again=True)

    yield ways
    for name in [name for name, one in sys.modules.items() if str(tmp_path) in str(getattr(one, "__file__", ""))]:
        del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("compute", ["fp16", "fp32"])
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.ci] if one in ("convs", "turns") else []) for one in strangers.GROWN]
)
def test_a_strangers_net_is_grown_and_nothing_changes(both, name, compute):
    found = both(name, compute)
    assert found.equal and found.grown, found.why


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=[pytest.mark.ci] if one in ("near_one", "one_is_zero") else [])
        for one in strangers.LIES
        if one != "counts"  # gives something else each time that it runs, grown or not
    ],
)
def test_a_net_whose_blocks_only_look_alike_is_converted_whole_and_says_why(both, name):
    found = both(name)
    assert found.equal and not found.grown and found.why
