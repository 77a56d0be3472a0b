"""Weights that are not at hand: a plan is shown all the same, a run says in one line what runs without them."""

import pytest

from ane_sweep.errors import Away, ConfigError
from ane_sweep.planner import config, overview
from ane_sweep.planner.settle import plan_for
from ane_sweep.store.cache import open_store


@pytest.fixture(autouse=True)
def no_hub(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_a_plan_is_shown_as_if_the_hub_gave_them(tmp_path):
    request = config.load(["+sweep=notebooks/gpt2-family"])
    plan, text, _ = overview.make_plan_view(request, tmp_path)
    assert len(plan.chains) == len(request.cells) == 16 and "4 downloads" in text
    (note,) = [line for line in text.splitlines() if "no weights of" in line]
    assert "gpt2, gpt2-medium, gpt2-large, gpt2-xl" in note and "weights=random" in note


def test_a_run_says_in_one_line_how_it_goes_without_them(tmp_path):
    request = config.load(["+sweep=notebooks/gpt2-family"])
    with open_store(tmp_path) as store, pytest.raises(ConfigError) as error:
        plan_for(request, store, tmp_path)
    (line,) = error.value.problems
    assert "weights=random runs on random ones" in line and "gpt2-xl" in line


def test_one_model_is_told_where_it_was_looked_for(tmp_path):
    with open_store(tmp_path) as store, pytest.raises(ConfigError) as error:
        plan_for(config.load(["model=gpt2"]), store, tmp_path)
    assert (
        not isinstance(error.value, Away) and "openai-community/gpt2 is not in the hub cache" in error.value.problems[0]
    )


def test_what_is_wrong_otherwise_is_said_beside_it(tmp_path):
    request = config.load(["-m", "model=gpt2,gpt2-medium,tiny-gpt2"])
    with open_store(tmp_path) as store, pytest.raises(ConfigError) as error:
        plan_for(request, store, tmp_path, to_show=True)
    assert error.value.problems == [
        "model=tiny-gpt2 has no trained weights to load; choices: weights=random, weights=FOLDER"
    ]
