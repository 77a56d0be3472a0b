"""Recipes applied for real through coremltools, and what the reference runtime then predicts."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from shipped_recipes import OPTIONS, predicted, recipe

from ane_sweep.bridge import recipes
from ane_sweep.bridge.axes import TARGETS
from ane_sweep.errors import StageError
from ane_sweep.mil import element_types, graph, package
from ane_sweep.worker.stages import chunk

FAST = ["int8_channel", "p4_g16_scaled", "sparse50_p4"]
MOST_WEIGHTS = 9  # of the tiny decoder


def values(result) -> dict[str, float]:
    return {entry.name: entry.value for entry in result.metrics}


def account(folder: Path) -> dict:
    return json.loads((folder / "compress.json").read_text())


def ops(folder: Path) -> list:
    return graph.view_program(package.read(folder / "model.mlpackage")).ops


def weights_db(how: dict) -> float:
    """SNR of uniformly distributed weights, as the random ones here are, under a recipe, and of activations. b bits on [-R, R] leave noise
    (2R / 2^b)^2 / 12 of R^2 / 3, so 4^-b; the smallest share s of the numbers holds s^3 of the energy."""
    noise = 0.0
    if how["kind"] != "sparse":
        noise = 4.0 ** -(how["bits"] or min(how["candidates"]))
    sparsity = how.get("sparsity")
    if sparsity is not None:
        zeros = recipes.parse_sparsity(sparsity)
        noise += (zeros if isinstance(zeros, float) else zeros[0] / zeros[1]) ** 3
    if how["activations"]:  # a tensor whose largest value is eight times its root mean square, in 8 bits
        noise += 8**2 / 3 * 4.0**-8
    return -10 * math.log10(noise)


def check(name: str, program, compressed, target: str) -> None:
    how = recipe(name)
    result, folder = compressed(how, target)
    whole, got = predicted(program(target)), predicted(folder)
    snr = 10 * math.log10(float(np.square(whole).sum() / np.square(got - whole).sum()))
    # The noises of all weights at once reach the output; half as much again for what lies between (norms, softmax),
    # and structured sparsity may not choose the smallest numbers.
    slack = 10 * math.log10(MOST_WEIGHTS) + 3
    assert snr > weights_db(how) - slack, (snr, weights_db(how))
    lower, upper = expected_bits(how, account(folder), target, program(target))
    assert lower <= values(result)["bits_per_weight"] <= upper


def expected_bits(how: dict, done: dict, target: str, source: Path) -> tuple[float, float]:
    """Bounds of bits per weight from shapes alone: indices, tables, scales, masks, what stays fp16, and alignment."""
    found = package.read(source / "model.mlpackage")
    shapes = {}
    for op in graph.view_program(found).ops:
        kind = element_types.tensor_type(op.proto.outputs[0].type) if op.type == "const" and op.proto.outputs else None
        if kind is not None and kind.dtype == "fp16":
            shapes[op.proto.outputs[0].name] = kind.shape
    least = most = 0.0
    for name, shape in shapes.items():
        count, setting = math.prod(shape), done["settings"].get(name)
        bits = (
            16.0 * count
            if setting is None
            else recipes.average_bits({**setting, "sparsity": setting.get("sparsity")}) * count
        )
        channels, extra = (shape[0] if shape else 1), 0.0
        if setting is not None and setting["kind"] == "palettized":
            tables = channels if setting["per_channel_scale"] else -(-channels // setting.get("group_size", channels))
            extra = (tables << setting["bits"]) * 16 + channels * 16 * setting["per_channel_scale"]
        if setting is not None and setting["kind"] == "linear":
            parts = {"per_tensor": 1, "per_channel": channels, "per_block": count // setting.get("block_size", 1)}
            extra = parts[setting["granularity"]] * 32  # a scale, and for iOS16 and asymmetric a zero point
        least, most = least + bits * 0.99, most + bits * 1.01 + extra + 3 * 8 * 192  # at most three records, aligned
    numbers = sum(math.prod(shape) for shape in shapes.values())
    return least / numbers, most / numbers


@pytest.mark.parametrize("name", FAST)
def test_a_recipe_predicts_and_has_its_size(name, program, compressed):
    check(name, program, compressed, "iOS18")


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option["weights"]])
def test_each_recipe_on_the_oldest_os_that_holds_it(name, program, compressed):
    check(name, program, compressed, OPTIONS[name]["min_target"])
    spec = package.read(compressed(recipe(name), OPTIONS[name]["min_target"])[1] / "model.mlpackage").spec
    assert spec.specificationVersion == {"iOS16": 7, "iOS17": 8, "iOS18": 9}[OPTIONS[name]["min_target"]]


@pytest.mark.parametrize(
    "name",
    [
        "p3",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("int4_channel", "p4_g16", "p4_scaled", "sparse50_int8")),
    ],
)
def test_coremltools_itself_refuses_it_one_os_earlier(name, program, compressed):
    how = recipe(name)
    earlier = TARGETS[TARGETS.index(recipes.least_target(how)[0]) - 1]
    with pytest.raises(StageError, match="coremltools refuses this recipe"):
        compressed(how, earlier)


def test_before_ios16_coremltools_would_silently_raise_the_os(program, compressed):
    """So the planner refuses iOS15: the program would no longer be what the cell says."""
    _, folder = compressed(recipe("p4"), "iOS15")
    assert package.read(program("iOS15") / "model.mlpackage").spec.specificationVersion == 6
    assert package.read(folder / "model.mlpackage").spec.specificationVersion == 7


@pytest.mark.parametrize("name", ["p4_g16_scaled", "sparse50_p4"])
def test_cut_after_compression_it_is_the_same_to_the_last_bit(name, compressed, tmp_path):
    _same_in_chunks(compressed(recipe(name))[1], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option["weights"]])
def test_each_recipe_cut_is_the_same_to_the_last_bit(name, compressed, tmp_path):
    _same_in_chunks(compressed(recipe(name))[1], tmp_path)


def _same_in_chunks(folder: Path, out: Path) -> None:
    for count in (2, 3):
        (out / str(count)).mkdir()
        how = {"count": count, "by": "bytes", "own": "none", "pipeline": "manual"}
        chunk.run(how, {"program": folder}, out / str(count))
        np.testing.assert_array_equal(predicted(out / str(count)), predicted(folder))


def test_the_same_recipe_gives_the_same_bytes(program, compressed, tmp_path):
    from ane_sweep.worker.stages import compress

    _, folder = compressed(recipe("p4_g16_scaled"))
    compress.run({"recipe": recipe("p4_g16_scaled")}, {"program": program("iOS18")}, tmp_path)
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4
    for path in files:
        assert (tmp_path / path).read_bytes() == (folder / path).read_bytes(), path


def test_skips_and_overrides_reach_single_weights(program, compressed):
    overrides = [{"match": "transpose_[0-3]_*", "kind": "linear"}, {"match": "x_23_*", "bits": 2}]
    how = recipes.canonical({"kind": "palettized", "skip": ["gather"], "overrides": overrides})
    _, folder = compressed(how)
    done = account(folder)
    assert done["left"]["hf_transformer_wte_weight_to_fp16"] == "skip: gather"
    assert done["settings"]["transpose_5_to_fp16"]["bits"] == 2  # read by the op x_23
    found = [op.type for op in ops(folder) if op.type.startswith("constexpr")]
    assert sorted(found) == ["constexpr_blockwise_shift_scale"] * 4 + ["constexpr_lut_to_dense"] * 5


def test_a_recipe_that_compresses_nothing_leaves_the_program_as_it_is_and_says_why(program, compressed):
    """In place of a failure: a matrix of precisions over a tiny net has figures in every cell, with their doubt."""
    result, folder = compressed(recipes.canonical({"kind": "linear", "skip": ["*"]}))
    (said,) = result.doubts
    assert said.startswith(
        "the recipe compresses none of this program's weights (skip: *), so the figures are those of the program"
    )
    kinds = [[op.type for op in ops(one)] for one in (folder, program("iOS18"))]
    assert kinds[0] == kinds[1]
    assert account(folder)["settings"] == {} and result.realised["weights_compressed"] == 0


def test_scales_beside_a_table_are_those_of_output_channels(program, compressed, tmp_path):
    """One per output channel (coremltools would take one per input), and put to use: the weights come closer."""
    from coremltools.optimize._utils import lut_to_dense

    from ane_sweep.worker.compress import passes

    def dense(folder: Path) -> dict[str, np.ndarray]:
        functions = passes.load_program(folder / "model.mlpackage").functions
        return {
            op.name: (
                op.weight.val
                if op.weight.op.op_type == "const"
                else lut_to_dense(op.weight.op.indices.val, op.weight.op.lut.op.materialized_val_inference())
                if op.weight.op.lut.val is None  # scales under a table, which coremltools itself does not unfold
                else op.weight.op.materialized_val_inference()
            )
            for function in functions.values()
            for op in function.find_ops(op_type="linear")
        }

    whole = dense(program("iOS18"))
    plain, scaled = (dense(compressed(recipe(name))[1]) for name in ("p2", "p2_scaled"))
    errors = [sum(np.square((got[n] - whole[n]).astype(np.float64)).sum() for n in whole) for got in (plain, scaled)]
    assert errors[1] < errors[0]
    for name, value in scaled.items():  # at most four values a row, each row with its own
        assert max(len(np.unique(row)) for row in value) <= 4 < len(np.unique(value)), name


@pytest.mark.slow
@pytest.mark.ci
def test_every_palette_was_ready_when_coremltools_asked(program):
    from ane_sweep.worker.compress import passes

    for name in ("p4_g16_scaled", "sparse50_p4"):
        _, done = passes.apply(passes.load(program("iOS18") / "model.mlpackage"), recipe(name))
        assert done.palettes.late == 0
        assert not done.palettes._ahead and done.palettes._next is None, "all that were announced were requested"


def test_large_fp16_weights_are_pruned_as_much_as_asked():
    from coremltools.optimize.coreml._quantization_passes import prune_weights

    from ane_sweep.worker.compress.passes import Prune

    numbers = np.random.default_rng(0).normal(size=(400, 250)).astype(np.float16)
    share = {}
    for kind in (Prune, prune_weights):
        with np.errstate(all="ignore"):
            share[kind] = 1 - len(kind.compress_by_magnitude(numbers, 0.75).nonzero_data) / numbers.size
    assert share[Prune] == pytest.approx(0.75, abs=0.002)  # equal magnitudes go together
    assert abs(share[prune_weights] - 0.75) > 0.1, "coremltools prunes large fp16 weights rightly now: drop Prune"
