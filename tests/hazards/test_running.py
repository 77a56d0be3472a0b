"""Rules that run the program: where fp16 loses numbers, and the op at which the Neural Engine's roundings part from fp32."""

import json

import numpy as np
import pytest

pytest.importorskip("coremltools")
from coremltools.converters.mil import Builder as mb
from fix.checks import apply_rewrite, save
from hazards.probes import find_named

from ane_sweep.__main__ import main
from ane_sweep.fix import output
from ane_sweep.fix.graph import Graph
from ane_sweep.hazards.bounds import bound
from ane_sweep.mil import graph, package

HALF = np.float16


def lint(capsys, path, *words):
    code = main(["lint", str(path), "--json", *words])
    return code, {
        one["rule"].partition("/")[2]: one for one in json.loads(capsys.readouterr().out)["packages"][0]["findings"]
    }


@pytest.fixture
def grows(tmp_path):
    """x * 100 squared, then divided again: beyond |x| = 2.6 the square overflows."""
    body = lambda x: mb.mul(x=mb.square(x=mb.mul(x=x, y=HALF(100)), name="square"), y=HALF(1e-4))  # noqa: E731
    return save(tmp_path / "grows.mlpackage", body, x=("fp16", (4, 64)))


def test_numbers_name_the_op_at_which_fp16_overflows(grows, tmp_path, capsys):
    assert "fp16_range" not in lint(capsys, grows)[1], "only if asked"
    np.save(tmp_path / "small.npy", np.full((4, 64), 1, HALF))
    np.save(tmp_path / "large.npy", np.full((4, 64), 3, HALF))
    assert "fp16_range" not in lint(capsys, grows, "--numbers", "--input", str(tmp_path / "small.npy"))[1]
    found = lint(capsys, grows, "--numbers", "--input", str(tmp_path / "large.npy"))[1]["fp16_range"]
    assert (found["op"], found["ops"], found["severity"]) == ("square", 1, "warning")
    assert "9e+04 in fp32" in found["why"] and "large.npy" in found["what"]


def test_numbers_that_vanish_before_a_logarithm(tmp_path, capsys):
    body = lambda x: mb.log(x=mb.mul(x=mb.square(x=x), y=HALF(1e-6), name="small"))  # noqa: E731
    path = save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 64)))
    found = lint(capsys, path, "--numbers", "--random", "1")[1]["fp16_range"]
    assert found["op"] == "small" and "0 in fp16" in found["why"] and "seed 1" in found["what"]
    path = save(tmp_path / "n.mlpackage", lambda x: mb.softmax(x=mb.mul(x=x, y=HALF(9)), axis=-1), x=("fp16", (4, 64)))
    assert "fp16_range" not in lint(capsys, path, "--numbers")[1], "a softmax loses small numbers without harm"


def test_a_sum_beyond_the_accumulator(tmp_path, capsys):
    weight = np.full((64, 64), 30, HALF)
    path = save(tmp_path / "m.mlpackage", lambda x: mb.matmul(x=x, y=weight, name="sum"), x=("fp16", (4, 64)))
    np.save(tmp_path / "x.npy", np.full((4, 64), 20, HALF))
    found = lint(capsys, path, "--numbers", "--input", str(tmp_path / "x.npy"))[1]["fp16_range"]
    assert found["op"] == "sum" and "32,768" in found["why"] and "3.84e+04" in found["why"]


def test_effects_of_an_infinite_op_read_as_a_sentence(tmp_path, capsys):
    body = lambda x: mb.mul(x=mb.mul(x=x, y=HALF(600), name="large"), y=HALF(600), name="over")  # noqa: E731
    path = save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 64)))
    found = lint(capsys, path, "--effects", "ane")[1]["effects_part"]
    assert "parts from fp32 here: not finite where fp32 is; this op itself makes it so" in found["why"]


def test_effects_name_the_op_at_which_they_part(tmp_path, capsys):
    body = lambda x: mb.relu(x=mb.softplus(x=mb.mul(x=x, y=HALF(20), name="large"), name="cliff"))  # noqa: E731
    path = save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 64)))
    found = lint(capsys, path, "--effects", "ane")[1]["effects_part"]
    assert (
        found["op"] == "cliff"
        and "100.0% of its peak; this op itself loses 100.0%" in found["why"]
        and "fp16 alone is 0.0% off" in found["why"]
    )
    found = lint(capsys, path, "--effects", "gelu_tanh")[1]["effects_part"]
    assert found["severity"] == "note" and "do not part" in found["what"]


def test_an_epsilon_that_vanishes_beside_what_it_is_added_to_is_no_fault(tmp_path, capsys):
    def body(x):
        large = mb.mul(x=x, y=HALF(300))
        mean = mb.reduce_mean(x=mb.square(x=large), axes=[-1], keep_dims=True)
        return mb.mul(x=large, y=mb.rsqrt(x=mb.add(x=mean, y=HALF(1e-6))))

    path, mended = save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 64))), tmp_path / "mended.mlpackage"
    found = lint(capsys, path, "--numbers", "--effects", "ane")[1]
    assert found["fp16_range"]["severity"] == found["effects_part"]["severity"] == "warning"
    source = package.read(path)
    output.write_package(source, apply_rewrite(source, "rms_norm_scaled", tmp_path)[0], mended)
    found = lint(capsys, mended, "--numbers", "--effects", "ane")[1]
    assert "fp16_range" not in found and found["effects_part"]["severity"] == "note"


def test_numbers_that_vanish_before_an_epsilon_as_small_as_they_are(tmp_path, capsys):
    def body(x):
        squares = mb.square(x=x, name="squares")
        return mb.mul(x=x, y=mb.rsqrt(x=mb.add(x=squares, y=HALF(6e-8))))

    path = save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 64)))
    values = np.full((4, 64), 1.5e-4, HALF)
    values[0, 0] = 1
    np.save(tmp_path / "x.npy", values)
    found = lint(capsys, path, "--numbers", "--input", str(tmp_path / "x.npy"))[1]["fp16_range"]
    assert found["op"] == "squares", "though the one large number hides the loss from the peak of the sum"


def test_wrong_words_and_inputs(grows, tmp_path, capsys):
    assert main(["lint", str(grows), "--effects", "warp"]) == 2
    assert "unknown effect 'warp'" in capsys.readouterr().err
    assert main(["lint", str(grows), "--numbers", "--input", str(tmp_path / "none.npy")]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_text_says_what_why_and_what_to_do(tmp_path, capsys):
    path = save(
        tmp_path / "m.mlpackage", lambda x: mb.reduce_log_sum_exp(x=x, axes=[-1], keep_dims=True), x=("fp16", (4, 64))
    )
    main(["lint", str(path), "--chip", "m4,m1"])
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  warn")]
    assert len(said) == 1, "once for all chips"
    assert "reduce_log_sum_exp" in said[0] and "coremltools#2690" in said[0] and "--only logsumexp_shifted" in said[0]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda x: mb.exp(x=mb.mul(x=mb.abs(x=x), y=HALF(-1))), False),
        (lambda x: mb.exp(x=mb.sub(x=x, y=mb.reduce_max(x=x, axes=[-1], keep_dims=True))), False),
        (lambda x: mb.exp(x=mb.sigmoid(x=x)), False),
        (lambda x: mb.exp(x=mb.mul(x=mb.tanh(x=x), y=HALF(12))), True),
        (lambda x: mb.exp(x=x), True),
    ],
)
def test_an_exponential_that_the_program_bounds_is_no_hazard(body, expected, tmp_path):
    path = save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 64)))
    assert ("exp_unshifted" in find_named(path)) == expected


def test_bounds_hold_for_what_is_computed(tmp_path):
    def body(x):
        y = mb.clip(x=x, alpha=HALF(-2), beta=HALF(3))
        z = mb.sub(x=mb.mul(x=y, y=HALF(-2)), y=mb.square(x=mb.relu(x=y)))
        return mb.concat(values=[z, mb.layer_norm(x=x, axes=[-1], epsilon=HALF(1e-5))], axis=0, name="both")

    found = Graph(graph.load(save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 64)))), tmp_path)
    assert bound(found, "both") == (-15.0, 8.0)
    assert bound(found, "x") == (-np.inf, np.inf)


def hardswish(x):
    y = mb.thresholded_relu(x=x, alpha=HALF(-100))
    return mb.mul(x=y, y=mb.sigmoid_hard(x=y, alpha=HALF(1 / 6), beta=HALF(0.5)))


def written_out(x):
    return mb.mul(x=x, y=mb.mul(x=mb.relu6(x=mb.add(x=x, y=HALF(3))), y=HALF(1 / 6)))


@pytest.mark.parametrize("after", [hardswish, written_out])
@pytest.mark.parametrize(("shape", "is_found"), [((4, 64), True), ((1, 4, 64), False)])
def test_hardswish_after_a_product_of_rank_2(after, shape, is_found, tmp_path):
    body = lambda x: after(mb.linear(x=x, weight=np.ones((64, 64), HALF), bias=np.zeros(64, HALF)))  # noqa: E731
    assert ("hardswish_rank2" in find_named(save(tmp_path / "m.mlpackage", body, x=("fp16", shape)))) == is_found


def test_no_hardswish(tmp_path):
    body = lambda x: mb.relu6(x=mb.linear(x=x, weight=np.ones((64, 64), HALF), bias=np.zeros(64, HALF)))  # noqa: E731
    assert "hardswish_rank2" not in find_named(save(tmp_path / "m.mlpackage", body, x=("fp16", (4, 64))))
