"""What ships to be scored is what the script here makes, and the residual stream's scale changes nothing."""

from pathlib import Path

import pytest

from ane_sweep import data
from tests.proof.tale import __main__ as making
from tests.proof.tale import grammar, language, torn


def test_the_texts_that_ship_are_those_of_the_grammar_letter_by_letter(tmp_path):
    making.texts(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (Path(data.__file__).parent / "texts" / path.name).read_bytes(), path.name


def test_no_tale_that_is_scored_on_was_learned_from():
    learned = {tale.text for tale in grammar.tales(language.TALES, language.SEED)}
    shipped = (Path(data.__file__).parent / "texts" / "tales.txt").read_text(encoding="utf-8").splitlines()
    assert len(shipped) > 70 and not learned & set(shipped)


def test_a_tale_keeps_its_hero_and_its_mood_decides_its_end():
    for tale in grammar.tales(200, 5):
        assert sum(f"{name} " in tale.text for name, _ in grammar.HEROES) == 1 and tale.mood in grammar.MOODS
        assert "{" not in tale.text and tale.text.endswith(".")


def test_pairs_are_graded_by_the_facts_that_they_share():
    graded = torn.pairs(40, 3)
    assert {grade for *_, grade in graded} == {0.0, 1.25, 2.5, 3.75, 5.0}
    assert all(first != second for first, second, _ in graded)


def test_a_scaled_residual_stream_is_the_same_function_bit_by_bit():
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    small = {"n_embd": 32, "n_head": 2, "n_layer": 2, "n_positions": 128, "vocab_size": 50}
    model = GPT2LMHeadModel(GPT2Config(**small, bos_token_id=0, eos_token_id=0)).eval()
    ids = torch.arange(260) % 50
    with torch.inference_mode():
        before = model(ids[None, :100]).logits
        scale = language.rescale(model, ids.tolist())
        assert scale > 1 and torch.equal(model(ids[None, :100]).logits, before)
        largest = max(
            language._spread(one) for one in model(ids[None, :100], output_hidden_states=True).hidden_states[:-1]
        )
    assert language.LARGEST / 4 < largest <= language.LARGEST


@pytest.mark.parametrize("folder", ["tale", "mood"])
def test_what_ships_is_small_and_says_what_it_is(folder):
    home = Path(data.__file__).parent / folder
    assert {path.name for path in home.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(path.stat().st_size for path in home.iterdir()) < (3e6 if folder == "tale" else 3e5)
