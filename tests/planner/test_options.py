"""Options that no file spells out: precisions that their name says, rows of a file that holds several, derived fields."""

import pytest
import yaml

from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.planner import config, derive, help, option_files, options
from ane_sweep.planner.compose import Composer
from ane_sweep.planner.paths import conf_dir

FAMILY = """# sizes of one's own
family: gpt2
arch: {activation_function: gelu_new, layer_norm_epsilon: 1e-5, n_head: 4, n_positions: 64, vocab_size: 100}
options:
  small: {parameters: 100, arch: {n_embd: 16, n_layer: 2}}
  large: {parameters: 200, size: big, arch: {n_embd: 32, n_layer: 3, n_positions: 128}}
"""


def folder_with(tmp_path, group: str, name: str, text: str) -> str:
    (tmp_path / group).mkdir(exist_ok=True)
    (tmp_path / group / f"{name}.yaml").write_text(text)
    return str(tmp_path)


def problems(*words: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load([*words])
    return "\n".join(caught.value.problems)


def test_a_palettes_name_says_all_of_it():
    assert not list((conf_dir() / "precision").glob("p[0-9]*.yaml")) and len(options.PALETTES) == 48
    [cell] = config.load(["model=tiny-gpt2", "precision=p3_g16_uniform_scaled"]).cells
    assert cell.precision_options == {
        "name": "p3_g16_uniform_scaled", "compute": "fp16", "fp32_ops": [], "min_target": "iOS18", "min_psnr_db": None,
        "weights": {
            "kind": "palettized", "bits": 3, "granularity": "per_grouped_channel", "group_size": 16, "mode": "uniform",
            "per_channel_scale": True,
        },
    }  # fmt: skip
    assert options.palette("p4")["min_target"] == "iOS16"


@pytest.mark.parametrize("name", ["p5", "p4_scaled_g16", "p4_g32", "p", "fp16", "p44"])
def test_no_other_name_is_a_palette(name):
    assert options.palette(name) is None and name not in options.PALETTES


def test_palettes_are_listed_completed_matched_suggested_and_shown(capsys):
    assert {"p4", "p6_uniform", "p8_g16_scaled"} <= set(help.values("precision")) & set(Composer().options("precision"))
    found = {cell.precision for cell in config.load(["-m", "model=tiny-gpt2", "precision=glob(p4*)"]).cells}
    assert found == {name for name in options.PALETTES if name.startswith("p4")}
    assert "did you mean 'p4_g16_scaled'?" in problems("model=tiny-gpt2", "precision=p4_g16_scald")
    assert main(["--cfg", "job", "--package", "precision", "precision=p6_uniform"]) == 0
    assert "mode: uniform" in capsys.readouterr().out


def test_a_file_of_the_users_own_stands_before_the_name(tmp_path):
    folder = folder_with(tmp_path, "precision", "p4", "weights: {kind: linear, bits: 8}\n")
    [cell] = config.load(["--config-dir", folder, "model=tiny-gpt2", "precision=p4"]).cells
    assert cell.precision_options["weights"]["kind"] == "linear"


def test_rows_of_a_file_are_options_each_over_what_they_share(tmp_path):
    folder = folder_with(tmp_path, "model", "mine", FAMILY)
    composer = Composer(folder)
    assert {"small", "large"} <= set(composer.options("model")) and "mine" not in composer.options("model")
    small, large = config.load(["--config-dir", folder, "-m", "model=small,large"]).cells
    assert [cell.model_options["layers"] for cell in (small, large)] == [2, 3]
    assert [cell.model_options["max_seq_len"] for cell in (small, large)] == [64, 128]
    assert (small.model_options["arch"]["layer_norm_epsilon"], large.size) == (1e-5, "big")
    assert "did you mean 'small'?" in problems("--config-dir", folder, "model=smal")


def test_a_file_whose_rows_are_none_is_a_sentence(tmp_path):
    folder = folder_with(tmp_path, "model", "mine", "family: gpt2\noptions: [small]\n")
    assert "options" in (said := problems("--config-dir", folder, "model=mine")) and "Traceback" not in said


def test_what_an_option_states_is_not_derived(tmp_path):
    stated = {**options.shipped("model", "tiny-gpt2"), "max_seq_len": 77, "texts": {"count": 3}}
    folder = folder_with(tmp_path, "model", "mine", yaml.safe_dump(stated | {"name": "mine"}))
    [cell] = config.load(["--config-dir", folder, "model=mine"]).cells
    assert cell.model_options["max_seq_len"] == 77 and cell.model_options["texts"] == {"count": 3}


def test_an_architecture_that_nothing_can_be_built_of_is_named(tmp_path):
    folder = folder_with(tmp_path, "model", "mine", "family: gpt2\nparameters: 9\narch: {n_layer: two}\n")
    assert "arch.n_layer" in problems("--config-dir", folder, "model=mine")


def test_shipped_files_state_nothing_that_follows():
    for group in options.GROUPS:
        for path in (conf_dir() / group).glob("*.yaml"):
            stated = options.rows(path) or {path.stem: yaml.safe_load(option_files.read(path))}
            for name, option in stated.items():
                if "path" in option or "defaults" in option or name == "fp16":  # which explains each field
                    continue
                for key in ("cut_points", "layers", "hub", "package", "min_target", "min_psnr_db", "fp32_ops", "name"):
                    rest = {field: value for field, value in option.items() if field != key}
                    assert key not in option or derive.complete(group, name, rest).get(key, ...) != option[key], (
                        name,
                        key,
                    )
