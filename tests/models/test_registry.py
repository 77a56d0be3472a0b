"""Families are found by folder listing; every YAML of conf/model describes one of them truthfully."""

import math
import subprocess
import sys

import pytest

from ane_sweep.bridge import families
from ane_sweep.bridge.kinds import KINDS, tasks_with
from ane_sweep.errors import ConfigError
from ane_sweep.planner import architecture, checkpoints
from ane_sweep.worker import models
from ane_sweep.worker.models import weights
from tests.shipped import all_shipped

EVERY = all_shipped("model")
OPTIONS = {
    name: option for name, option in EVERY.items() if not {"path", "defaults"} & set(option)
}  # the others are built of what is given
KEYS = {"name", "family", "size", "task", "hub", "package", "parameters", "layers", "max_seq_len", "cut_points",
        "texts", "arch", "arch_keys"}  # fmt: skip


def test_names_are_the_families_and_nothing_else():
    found = families.names()
    assert found == sorted(found) and {"bert", "gpt2", "llama", "t5"} <= set(found)
    assert not [name for name in found if name.startswith("_") or name == "weights"]


def test_variants_are_read_without_importing_torch():
    code = (
        "import sys; from ane_sweep.bridge import families; print(families.names(), families.variants('gpt2'));"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "['original', 'split_einsum']" in done.stdout


@pytest.mark.parametrize("family", ["gpt3", "weights", "_ane", "..errors", "os.path"])
def test_an_unknown_family_lists_the_known_and_the_files_to_add(family):
    for call in (models.get, families.variants):
        with pytest.raises(ConfigError) as caught:
            call(family)
        assert f"known: {', '.join(families.names())}" in str(caught.value)
        assert f"ane_sweep/worker/models/{family}.py" in str(caught.value) and "conf/model/" in str(caught.value)


def test_a_broken_family_is_not_called_unknown(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there\nVARIANTS = {'original': None}\n")
    monkeypatch.setattr(families, "FOLDER", tmp_path)
    monkeypatch.setattr(models, "__path__", [str(tmp_path)])
    assert families.variants("broken") == ["original"]
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        models.get("broken")


MADE = ("probe", "ladder", "surgery", "unet")  # no checkpoint of transformers exists


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", OPTIONS)
def test_option_is_complete_and_true(name):
    option = OPTIONS[name]
    if option["family"] == "unet":
        pytest.importorskip("diffusers")
    assert set(option) == KEYS
    assert option["name"] == name and option["family"] in families.names()
    # A convolution net's block is one residual, a transformer's two.
    assert option["cut_points"] == (1 if option["family"] == "convnext" else 2) * option["layers"] + 1
    for key in ("layers", "max_seq_len"):
        # No key of the architecture where it holds no such number: RoBERTa's counts two positions that no text gets.
        name_in_arch = option["arch_keys"][key]
        assert checkpoints._number(option["arch"], name_in_arch, option[key]) == option[key]
        assert name_in_arch is None or architecture.at(option["arch"], name_in_arch) is not None
    counts = {
        **dict.fromkeys(tasks_with(lambda kind: kind.length == "architecture"), 8),
        "encoder": 16,
        "classifier": 16,
    }
    assert option["texts"]["count"] == counts.get(option["task"], 2)
    assert sum(math.prod(shape) for shape in weights.parameter_shapes(option).values()) == option["parameters"]
    first, *_ = models.get(option["family"]).ports(option, 16).inputs
    if option["family"] in ("ladder", "surgery"):
        assert option["hub"] is None and first.shape[2] == 1, "channels first"
    elif KINDS[option["task"]].length == "architecture":
        assert option["hub"] is None or first.shape in ((1, 3, 224, 224), (1, 80, 3000), (1, 128, 3000), (1, 77))
    else:
        assert (first.name, first.shape[:2]) == ("x" if option["task"] == "features" else "input_ids", (1, 16))
    if name.startswith("tiny-"):
        assert option["hub"] is None and option["package"] is None


def test_every_family_has_both_variants_and_a_tiny_option():
    given = {option["family"] for option in EVERY.values() if "path" in option}
    for family in sorted(set(families.names()) - given):
        more = {"unet": ["split_einsum_v2"]}.get(family, [])
        both = ["original"] if family == "surgery" else ["original", "split_einsum", *more]
        assert families.variants(family) == both == list(models.get(family).VARIANTS)
        assert any(o["family"] == family and o["size"] == "tiny" for o in OPTIONS.values())
        if family in MADE:
            continue
        # A checkpoint's config.json is compared with the option's family.
        module = weights.build_meta_skeleton(next(o for o in OPTIONS.values() if o["family"] == family))
        assert module.config.model_type.replace("-", "_") in (family, f"{family}_text_model", f"{family}_vision_model")


def test_every_activation_that_is_known_here_is_one_of_transformers():
    from transformers.activations import ACT2FN

    assert set(architecture.KNOWN_ACTIVATIONS) <= set(ACT2FN)


def test_every_shipped_architecture_follows_the_rules_and_every_rule_is_needed():
    for option in OPTIONS.values():
        assert architecture.problems(option["arch"]) == []
    archs = [option["arch"] for option in OPTIONS.values()]
    read = {name for arch in archs for part in (arch, *architecture.parts(arch).values()) for name in part}
    assert architecture.RULES.keys() - read <= {"relative_attention_max_distance", "sliding_window"}, (
        "in checkpoints alone"
    )
