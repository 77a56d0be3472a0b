"""A checkpoint is a model without YAML: its config.json names what a family here serves."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hub_server import COMMIT, serve
from tiny import ARCH, gpt2_checkpoint

from ane_sweep.__main__ import main
from ane_sweep.bridge import families
from ane_sweep.errors import ConfigError
from ane_sweep.planner import checkpoints, config, served
from ane_sweep.planner.plan import make_plan
from tests.shipped import all_shipped

SHIPPED = [*all_shipped("model").values()]
SERVED = [option for option in SHIPPED if "arch" in option and families.serves(option["family"])]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_config(**changes: object) -> None:
    gpt2_checkpoint(Path("c"))
    Path("c/config.json").write_text(json.dumps({**ARCH, **changes}))


def test_a_folder_is_a_value_of_the_axis_beside_options(here):
    gpt2_checkpoint(here / "a")
    gpt2_checkpoint(here / "b", n_layer=6)
    request = config.load(["-m", "model=./a,tiny-gpt2,./b", "seq_len=8", "model.texts.count=1"])
    assert [(c.model, c.model_options["layers"]) for c in request.cells] == [("./a", 4), ("tiny-gpt2", 2), ("./b", 6)]
    first = request.cells[0].model_options
    assert (first["family"], first["task"], first["max_seq_len"], first["cut_points"]) == ("gpt2", "causal_lm", 128, 9)
    assert {cell.model_options["texts"]["count"] for cell in request.cells} == {1}
    assert first["arch"]["n_embd"] == 32 and "model_type" not in first["arch"]


def test_it_is_planned_with_its_own_weights_or_with_random_ones(here, capsys):
    gpt2_checkpoint(here / "a")
    assert main(["plan", "-m", "model=./a", "weights=pretrained,random", "seq_len=8", "out=o"]) == 0
    assert "2 conversions" in capsys.readouterr().out
    assert main(["plan", "model=./a", "seq_len=200", "out=o"]) == 2
    assert "seq_len=200 is beyond the 128 positions of ./a" in capsys.readouterr().out
    assert main(["--cfg", "job", "model=./a"]) == 0
    assert "name: ./a" in capsys.readouterr().out


@pytest.mark.parametrize("option", SERVED, ids=lambda option: option["name"])
def test_what_is_read_from_an_architecture_is_what_our_options_say(option):
    serves = families.serves(option["family"])
    read = served._option("x", option["family"], serves, option["task"], option["arch"])
    for key in ("task", "layers", "max_seq_len", "cut_points", "texts", "arch_keys"):
        assert read[key] == option[key], key
    few = option["parameters"] < 1e5  # biases, which are left out, are more of a narrow model
    assert read["parameters"] == pytest.approx(option["parameters"], rel=0.06 if few else 0.04)


def test_every_family_but_the_made_one_serves_and_no_two_serve_one_thing():
    literals = [serves for family in families.names() if (serves := families.serves(family))]
    lacking = {family for family in families.names() if families.serves(family) is None}
    assert {"probe", "module", "package"} <= lacking and {
        option["family"] for option in SHIPPED if option.get("hub")
    }.isdisjoint(lacking)
    for kind in ("model_types", "architectures"):
        listed = [name for serves in literals for name in getattr(serves, kind)]
        assert len(listed) == len(set(listed))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architectures": ["GPT2ForNothing"]}, "no family here serves GPT2ForNothing (model_type 'gpt2'); "
         "family gpt2 serves GPT2LMHeadModel, GPT2Model of this model_type. Any PyTorch module converts as `original`"),
        ({"model_type": "gpt9"}, "the nearest, by the keys of its config.json, is gpt2. Any PyTorch module"),
        ({"architectures": None}, "serves no architecture (model_type 'gpt2')"),
        ({"architectures": [{"a": 1}]}, "no family here serves"),
        ({"quantization_config": {"bits": 4}}, "its weights are stored quantised"),
        ({"n_layer": None}, "arch.n_layer=None: "),
        ({"n_layer": 10**5}, "lacks n_layer, the number of layers, or says 100000"),
        ({"n_positions": "many"}, "arch.n_positions='many': "),
        ({"note": "${oc.env:HOME}"}, "holds ${...}, which would be looked up on this machine"),
    ],
)  # fmt: skip
def test_what_is_not_served_is_a_sentence_with_the_way_out(here, capsys, changes, said):
    with_config(**changes)
    assert main(["plan", "model=./c", "out=o"]) == 2
    error = capsys.readouterr().err
    assert said in error and "model=./c" in error and "Traceback" not in error and os.environ["HOME"] not in error


@pytest.mark.parametrize(
    ("text", "said"), [("{", "cannot be read"), ("[]", "holds no JSON object"), (None, "no config.json there")]
)
def test_a_folder_that_holds_no_checkpoint(here, capsys, text, said):
    Path("c").mkdir()
    if text is not None:
        Path("c/config.json").write_text(text)
    assert main(["plan", "model=./c", "out=o"]) == 2
    assert said in capsys.readouterr().err


def test_what_holds_two_models_is_refused_with_the_two_and_they_take_it(here, capsys):
    shipped = next(option for option in SHIPPED if option["name"] == "clip-image")
    Path("c").mkdir()
    config = {"model_type": "clip", "architectures": ["CLIPModel"], **shipped["arch"]}
    Path("c/config.json").write_text(json.dumps(config))
    Path("c/pytorch_model.bin").write_bytes(b"x")
    assert main(["plan", "model=./c", "out=o"]) == 2
    assert "two towers; model=clip-image,clip-text weights=./c takes both" in capsys.readouterr().err
    assert main(["plan", "-m", "model=clip-image,clip-text", "weights=./c", "allow_pickle=true", "out=o"]) == 0
    assert "2 conversions" in capsys.readouterr().out


def test_a_picture_model_whose_sizes_are_not_said(here):
    Path("c").mkdir()
    config = {"model_type": "vit", "architectures": ["ViTModel"], "num_hidden_layers": 2, "hidden_size": 64}
    Path("c/config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="lacks image_size and patch_size"):
        served.option("./c")


def test_a_checkpoint_without_a_number_of_layers_or_nanogpts_own(here):
    gpt2_checkpoint(Path("c"))
    arch = {key: value for key, value in ARCH.items() if key not in ("n_layer", "model_type")}
    Path("c/config.json").write_text(json.dumps({**arch, "model_type": "gpt2"}))
    with pytest.raises(ConfigError, match="lacks n_layer"):
        served.option("./c")
    Path("c/config.json").write_text(json.dumps({"block_size": 8}))
    with pytest.raises(ConfigError, match=r"model=nanogpt weights=\./c"):
        served.option("./c")


def test_what_is_made_of_a_checkpoint_has_one_key_whether_it_is_fetched_or_there_already(here):
    gpt2_checkpoint(here / "a")
    (cell,) = config.load(["model=./a", "seq_len=8"]).cells
    there = checkpoints.resolve(cell.model_options, "pretrained", seed=0, allow_pickle=False, digests=here / "d")
    fetched = replace(there, folder=None, fetch={"repo": "me/a", "revision": "x", "files": ["config.json"]})
    plans = [make_plan([cell], [], {cell.key: one}, host="h", toolchain={}) for one in (there, fetched)]
    keys = [{key for key, task in plan.tasks.items() if task.stage != "fetch"} for plan in plans]
    assert keys[0] == keys[1] and len(plans[1].tasks) == len(keys[1]) + 1


def test_all_that_is_wrong_with_a_list_is_said_together(here, capsys):
    gpt2_checkpoint(Path("c"))
    with_config(model_type="gpt9")
    assert main(["plan", "-m", "model=tiny-gpt2,./c,./d,c", "out=o"]) == 2
    error = capsys.readouterr().err
    assert "no family here serves" in error and "model=./d: no config.json there" in error
    assert "the folder is model=./c" in error


def plan(tmp_path: Path, *words: str, **env: str) -> str:
    """In a process of its own: huggingface_hub reads its endpoint and cache folder when it is imported."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "ane_sweep", "plan", "seq_len=8", "out=o", *words], cwd=tmp_path, text=True, timeout=120,
        capture_output=True, env={**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0", "HF_TOKEN": "", **env},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_hub_id_is_planned_without_fetching_its_weights_and_goes_on_without_the_hub(tmp_path):
    for name, layers in (("me/a", 4), ("me/b", 6), ("me/closed", 4)):
        gpt2_checkpoint(tmp_path / "hub" / name, n_layer=layers)
    with serve(tmp_path / "hub", gated={"me/closed"}) as (endpoint, seen):
        said = plan(tmp_path, "-m", "model=me/a,me/b@v1,tiny-gpt2", "weights=random,pretrained", HF_ENDPOINT=endpoint)
        assert "model=tiny-gpt2 has no trained weights" in said  # and of the others nothing is wrong
        assert "me/a" not in said and "me/b" not in said
        said = plan(tmp_path, "-m", "model=me/a,me/b@v1", "chunks=1,7", HF_ENDPOINT=endpoint)
        assert "2 downloads" in said and "2 conversions" in said
        assert not [line for line in seen if line.startswith("GET") and "model.safetensors" in line]
        assert [line for line in seen if "me/b/resolve/v1/config.json" in line]
        said = plan(tmp_path, "-m", "model=me/closed,me/b@v2,me/none", HF_ENDPOINT=endpoint)
        assert f"me/closed is gated: accept its terms at {endpoint}/me/closed, then set HF_TOKEN" in said
        assert "RevisionNotFoundError" in said and "model=me/none: no config.json" in said
        assert "1 conversions" in plan(tmp_path, "model=me/closed", HF_ENDPOINT=endpoint, HF_TOKEN="hf_x")
    away = plan(tmp_path, "model=me/a", "weights=random", HF_ENDPOINT="http://127.0.0.1:9")
    assert "1 conversions" in away  # its config.json is in the cache
    away = plan(tmp_path, "model=me/a", HF_ENDPOINT="http://127.0.0.1:9")
    assert "no weights of me/a here" in away and "planned as if it could" in away and "weights=random" in away


@pytest.mark.slow
@pytest.mark.ci
def test_a_pinned_revision_in_the_cache_needs_no_hub(tmp_path):
    snapshot = tmp_path / "hf" / "hub" / "models--me--a" / "snapshots" / COMMIT
    snapshot.parent.mkdir(parents=True)
    shutil.copytree(gpt2_checkpoint(tmp_path / "made"), snapshot)
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "v1").write_text(COMMIT)
    for name in ("me/a@v1", f"me/a@{COMMIT}"):
        assert "1 conversions" in plan(tmp_path, f"model={name}", HF_HUB_OFFLINE="1")
    assert "is not in the hub cache" in plan(tmp_path, "model=me/a", HF_HUB_OFFLINE="1")


def test_a_window_that_no_variant_builds_is_refused_in_the_plan(here, capsys):
    words = ["model=tiny-qwen2", "seq_len=8", "weights=random", "out=o"]
    assert main(["plan", *words, "+model.arch.use_sliding_window=true"]) == 2
    assert "model=tiny-qwen2: its config.json has use_sliding_window=true, and no variant" in capsys.readouterr().err
