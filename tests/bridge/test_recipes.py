"""What a recipe may say, what it comes to, and where that enters the plan."""

import pytest
from planner.test_plan import counts, planned
from shipped_recipes import OPTIONS

from ane_sweep.bridge import recipes


@pytest.mark.parametrize("name", OPTIONS)
def test_each_option_is_valid_and_names_the_os_that_its_recipe_needs(name):
    option = OPTIONS[name]
    assert option["name"] == name and recipes.problems(option["weights"]) == []
    recipe = recipes.canonical(option["weights"])
    assert option["min_target"] == ("iOS15" if recipe is None else recipes.least_target(recipe)[0])


def test_a_palettes_name_says_all_of_it():
    """p4_g16_uniform_scaled: bits, channels that share a table, how it is found, scales beside it. Every combination."""
    expected = {}
    for bits in recipes.PALETTE_BITS:
        for grouped, mode, scaled in [(g, m, s) for g in (0, 1) for m in ("kmeans", "uniform") for s in (False, True)]:
            name = f"p{bits}" + "_g16" * grouped + "_uniform" * (mode == "uniform") + "_scaled" * scaled
            recipe = {"kind": "palettized", "bits": bits, "mode": mode, "per_channel_scale": scaled}
            recipe |= {"granularity": "per_grouped_channel", "group_size": 16} if grouped else {}
            expected[name] = recipes.canonical(recipe)
    assert {n: recipes.canonical(o["weights"]) for n, o in OPTIONS.items() if n[0] == "p"} == expected


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ("p4", "precision.weights.kind='p4': unknown; choices: linear, palettized, sparse, mixed"),
        (
            {"kind": "palettized", "bits": 5},
            "bits=5: choices for palettized: 1, 2, 3, 4, 6, 8; Core ML's tables have indices",
        ),
        (
            {"kind": "linear", "bits": True},
            "bits=True: choices for linear: 4, 8; Core ML has whole numbers of these widths alone",
        ),
        ({"kind": "linear", "group_size": 8}, "group_size: nothing reads this key of kind linear"),
        ({"kind": "sparse", "sparsity": "4:2"}, 'expected a share between 0 and 1, or "n:m" with n under m'),
        ({"kind": "sparse", "sparsity": None}, "kind sparse is nothing without it"),
        ({"kind": "mixed", "bits": 9}, "expected an average from 2 to 8"),
        ({"kind": "mixed", "candidates": []}, "a list of widths out of"),
        ({"kind": "mixed", "overrides": [{"match": "x"}]}, "mixed chooses the bits itself"),
        ({"kind": "linear", "overrides": [{"bits": 4}]}, "expected a mapping with match: PATTERN"),
        ({"kind": "linear", "overrides": [{"match": "x", "bits": 3}]}, "overrides[0].bits=3: choices for linear"),
        ({"kind": "palettized", "per_channel_scale": True, "sparsity": 0.5}, "leave one of the two out"),
        ({"kind": "linear", "skip": "gather"}, "skip='gather': expected a list of patterns"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said(weights, text):
    assert text in "\n".join(recipes.problems(weights))


def test_equal_recipes_are_equal_however_they_are_written():
    short, long = {"kind": "palettized"}, {"kind": "palettized", "bits": 4, "group_size": 8, "skip": []}
    assert recipes.canonical(short) == recipes.canonical(long)
    assert recipes.canonical({"kind": "mixed", "bits": 3, "min_psnr_db": 40})["bits"] is None


def test_an_override_counts_for_the_os():
    recipe = recipes.canonical({"kind": "linear", "overrides": [{"match": "*head*", "kind": "palettized", "bits": 3}]})
    assert recipes.least_target(recipe) == ("iOS18", "3-bit tables")
    assert recipe["overrides"][0]["mode"] == "kmeans"  # another kind starts from its own defaults


def test_a_recipe_that_the_os_cannot_hold_is_refused_with_the_one_that_can():
    made = planned(
        "-m", "model=tiny-gpt2", "weights=random", "precision=p3,p4_g16,w8a8,int8_channel", "target=iOS15,iOS16,iOS17",
        "runtime=reference",
    )  # fmt: skip
    reasons = set(made.refused.values())
    assert "precision=p3 needs target=iOS18 or newer (3-bit tables), not iOS16" in reasons
    assert "precision=p4_g16 needs target=iOS18 or newer (tables per grouped channel), not iOS17" in reasons
    assert "precision=w8a8 needs target=iOS17 or newer (quantized activations), not iOS16" in reasons
    assert "precision=int8_channel needs target=iOS16 or newer (compressed weights), not iOS15" in reasons
    assert len(made.chains) == 3  # w8a8 on iOS17, int8_channel on iOS16 and iOS17


def test_changing_the_recipe_changes_what_the_os_must_hold():
    (reason,) = planned(
        "model=tiny-gpt2", "weights=random", "precision=p4", "precision.weights.bits=3", "target=iOS17"
    ).refused.values()
    assert "iOS18" in reason


def test_one_conversion_serves_all_recipes_and_one_calibration_all_mixed_ones():
    made = planned(
        "-m", "model=tiny-gpt2", "weights=random", "runtime=reference", "chunks=1,2",
        "precision=fp16,p4,int4_block32,mixed3,mixed4,mixed_40db,w8a8",
    )  # fmt: skip
    found = counts(made)
    wanted = {"reference": 1, "convert": 1, "calibrate": 2, "compress": 6, "chunk": 7, "score": 7}
    assert {stage: found[stage] for stage in wanted} == wanted
    keys = {task.stage: set(task.inputs) for task in made.tasks.values() if task.stage in ("calibrate", "compress")}
    assert keys["calibrate"] == {"program", "reference"}
    sizes = {task.label: task.disk_bytes for task in made.tasks.values() if task.stage == "compress"}
    assert sizes["compress tiny-gpt2 p4"] * 2 == sizes["compress tiny-gpt2 w8a8"]


def test_what_two_functions_share_is_not_compressed():
    made = planned("model=tiny-gpt2", "weights=random", "precision=p4", "cache=stateful", "runtime=reference")
    assert "coremltools 9.0 compresses programs of one function" in next(iter(made.refused.values()))


@pytest.mark.parametrize(
    ("weights", "bits"),
    [
        ({"kind": "linear", "bits": 4}, 4),
        ({"kind": "sparse", "sparsity": 0.75}, 5),
        ({"kind": "sparse", "sparsity": "1:4"}, 13),
        ({"kind": "palettized", "bits": 4, "sparsity": 0.5}, 3),
        ({"kind": "mixed", "bits": 3.5}, 3.5),
    ],
)
def test_estimated_bits(weights, bits):
    assert recipes.average_bits(recipes.canonical(weights)) == bits
