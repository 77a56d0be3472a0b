"""Figures with known right answers, and the stage with a runtime of three lines."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ane_sweep.errors import StageError
from ane_sweep.stats.psnr import EXACT_DB, Closeness, psnr_db, recorded_db
from ane_sweep.stats.ranks import ranks
from ane_sweep.worker import runtimes
from ane_sweep.worker.feeds import agreement
from ane_sweep.worker.feeds.arrays import StackWriter, list_names, map_array
from ane_sweep.worker.stages import score

RNG = np.random.default_rng(0)


def cosine(*, reference, candidate):
    closeness = Closeness()
    closeness.add(reference=reference, candidate=candidate)
    return closeness.cosine()


def test_psnr_of_known_arrays():
    reference = np.array([[0.0, 4.0], [-10.0, 2.0]], np.float32)
    # peak 10, every value off by 0.1: 20 log10(10 / 0.1) = 40 dB
    assert psnr_db(reference=reference, candidate=reference + np.float32(0.1)) == pytest.approx(40.0, abs=1e-4)


def test_psnr_counts_every_value_not_the_first_axis():
    """coremltools' own divides by the first dimension: 1 x 512 x 768 would read 56 dB too low."""
    reference = RNG.standard_normal((1, 512, 768)).astype(np.float32)
    noisy = reference + 1e-3 * RNG.standard_normal(reference.shape).astype(np.float32)
    expected = 20 * math.log10(np.abs(reference).max()) - 10 * math.log10(1e-6)
    assert psnr_db(reference=reference, candidate=noisy) == pytest.approx(expected, abs=0.05)


def test_the_peak_is_the_references():
    reference, candidate = np.array([1.0, 0.0]), np.array([10.0, 0.0])
    there, back = (psnr_db(reference=reference, candidate=candidate), psnr_db(reference=candidate, candidate=reference))
    assert back - there == pytest.approx(20.0)
    with pytest.raises(TypeError):
        psnr_db(reference, candidate)


def test_equal_arrays_are_visible_as_such():
    reference = RNG.standard_normal(100).astype(np.float32)
    assert psnr_db(reference=reference, candidate=reference) == math.inf
    assert recorded_db(math.inf) == EXACT_DB == 200.0
    almost = reference.astype(np.float64)
    almost[0] += 1e-14
    assert psnr_db(reference=reference, candidate=almost) > 200
    assert recorded_db(psnr_db(reference=reference, candidate=almost)) == 199.9
    assert recorded_db(psnr_db(reference=np.zeros(3), candidate=np.ones(3))) == -199.9


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e-3, 1e3))
def test_laws(seed, scale):
    random = np.random.default_rng(seed)
    a = random.standard_normal((5, 7)).astype(np.float32)
    b = a + 0.1 * random.standard_normal((5, 7)).astype(np.float32)
    psnr = psnr_db(reference=a, candidate=b)
    assert psnr_db(reference=a * scale, candidate=b * scale) == pytest.approx(psnr, abs=1e-3)
    assert cosine(reference=a, candidate=a * scale) == pytest.approx(1.0)
    assert cosine(reference=a, candidate=-a) == pytest.approx(-1.0)
    kl = agreement.kl_rows(reference=a, candidate=b)
    assert (kl >= 0).all() and kl.shape == (5,)
    shifted = agreement.kl_rows(reference=a, candidate=b + np.float32(scale))  # softmax does not see a shift of its row
    np.testing.assert_allclose(shifted, kl, atol=1e-4)
    split = Closeness()
    for row_a, row_b in zip(a, b):
        split.add(reference=row_a, candidate=row_b)
    assert split.psnr_db() == pytest.approx(psnr) and split.cosine() == pytest.approx(cosine(reference=a, candidate=b))


def test_kl_of_known_distributions():
    reference, candidate = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert agreement.kl_rows(reference=reference, candidate=candidate)[0] == pytest.approx(expected)
    assert agreement.kl_rows(reference=candidate, candidate=reference)[0] != pytest.approx(expected, abs=1e-3)
    many = np.tile(reference, (200, 1))
    assert agreement.kl_rows(reference=many, candidate=many).tolist() == [0.0] * 200
    assert agreement.kl_rows(reference=np.array([[2e4, -2e4]]), candidate=np.array([[-2e4, 2e4]]))[0] == pytest.approx(
        4e4
    )


def test_cosine_of_zeros_and_shape_mismatch():
    assert cosine(reference=np.zeros(2), candidate=np.zeros(2)) == 1.0
    assert cosine(reference=np.zeros(2), candidate=np.ones(2)) == 0.0
    with pytest.raises(ValueError, match=r"candidate has shape \(2,\), the reference \(3,\)"):
        psnr_db(reference=np.zeros(3), candidate=np.zeros(2))


def test_rank_agreement_is_spearmans_of_all_pairs():
    from scipy.stats import spearmanr

    reference = RNG.standard_normal((9, 5))
    unit = reference / np.linalg.norm(reference, axis=1, keepdims=True)
    noisy = reference + RNG.standard_normal((9, 5))
    other = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    upper = np.triu_indices(9, 1)
    expected = spearmanr((unit @ unit.T)[upper], (other @ other.T)[upper]).statistic
    assert agreement.rank_agreement(reference=reference, candidate=noisy) == pytest.approx(expected, abs=1e-12)
    assert agreement.rank_agreement(reference=reference, candidate=3 * reference) == pytest.approx(1.0)
    assert agreement.rank_agreement(reference=reference, candidate=np.ones((9, 5))) == 0.0


def test_equal_similarities_share_their_rank():
    assert ranks(np.array([5.0, 1.0, 5.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_nearest_other():
    vectors = np.array([[1.0, 0], [0.9, 0.1], [0, 1], [0.1, 2]])
    assert agreement.nearest_other(vectors).tolist() == [1, 0, 3, 2]


def test_stacks_are_plain_npz_files_and_repeatable(tmp_path):
    planes = RNG.standard_normal((3, 1, 4)).astype(np.float32)
    for name in ("a.npz", "b.npz"):
        with StackWriter(tmp_path / name, 3) as stack:
            for index, plane in enumerate(planes):
                stack.put(index, {"x": plane, "flag": np.bool_([index > 0])})
    with np.load(tmp_path / "a.npz") as arrays:
        np.testing.assert_array_equal(arrays["x"], planes)
    np.testing.assert_array_equal(map_array(tmp_path / "a.npz", "x"), planes)
    assert list_names(tmp_path / "a.npz") == ["x", "flag"]
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npz"]
    np.savez_compressed(tmp_path / "c.npz", x=planes)
    np.testing.assert_array_equal(map_array(tmp_path / "c.npz", "x"), planes)


class Fake(runtimes.Runtime):
    """A runtime: `answer(index, expected plane) -> outputs`."""

    def __init__(self, answer, expected):
        self.answer, self.expected, self.calls = answer, expected, []
        self.realised = {"runtime": "fake", "numerics": "none"}

    def predict(self, inputs):
        self.calls.append(inputs)
        return self.answer(len(self.calls) - 1, self.expected[len(self.calls) - 1])


@pytest.fixture
def scored(tmp_path, monkeypatch):
    """scored(task, reference planes, valid, answer) -> (StageResult, fake, out)."""

    def run(task, expected, valid, answer):
        (tmp_path / "ref").mkdir()
        (tmp_path / "out").mkdir()
        name = "last_hidden_state" if task == "encoder" else "logits"
        np.savez(tmp_path / "ref" / "outputs.npz", **{name: expected})
        ids = np.zeros((len(valid), 1, valid.shape[1]), np.int32)
        np.savez(tmp_path / "ref" / "inputs.npz", input_ids=ids, valid=valid)
        fake = Fake(lambda i, plane: {name: answer(i, plane)}, expected)
        monkeypatch.setattr(runtimes, "get", lambda _name: SimpleNamespace(load=lambda params, inputs: fake))
        params = {"model": {"task": task}, "runtime": "fake"}
        return score.run(params, {"reference": tmp_path / "ref"}, tmp_path / "out"), fake, tmp_path / "out"

    return run


def figures(result):
    json.dumps([vars(entry) for entry in result.metrics], allow_nan=False)
    return {entry.name: entry.value for entry in result.metrics}


def test_padding_counts_for_nothing(scored):
    expected = RNG.standard_normal((2, 1, 6, 9)).astype(np.float32)
    valid = np.arange(6)[None] < np.array([[4], [6]])

    def answer(index, plane):
        return np.where(valid[index][None, :, None], plane, 1e6)

    result, fake, out = scored("causal_lm", expected, valid, answer)
    assert figures(result) == {"psnr_db": 200.0, "cosine": pytest.approx(1.0), "kl": 0.0, "top1_agreement": 1.0}
    assert result.realised == {"runtime": "fake", "numerics": "none"}
    assert [sorted(call) for call in fake.calls] == [["input_ids"]] * 2 and fake.calls[0]["input_ids"].shape == (1, 6)
    with np.load(out / "outputs.npz") as arrays:
        assert arrays["logits"].shape == expected.shape and arrays["logits"].dtype == np.float32


def test_top1_of_a_decoder_is_over_positions(scored):
    expected = np.zeros((1, 1, 4, 3), np.float32)
    expected[..., 0] = 1.0

    def answer(_, plane):
        plane = plane.copy()
        plane[0, 1] = [0, 2, 0]
        return plane

    assert figures(scored("causal_lm", expected, np.ones((1, 4), bool), answer)[0])["top1_agreement"] == 0.75


def test_a_classifier_has_one_answer_an_input(scored):
    expected = np.array([[[1.0, 0.0]], [[0.0, 1.0]], [[3.0, 1.0]]], np.float32)
    result, _, _ = scored("classifier", expected, np.ones((3, 4), bool), lambda i, p: p[:, ::-1] if i == 1 else p)
    found = figures(result)
    assert found["top1_agreement"] == pytest.approx(2 / 3)
    p = 1 / (1 + math.e)
    assert found["kl"] == pytest.approx(((1 - p) - p) / 3)


def test_an_encoders_neighbours(scored):
    expected = np.zeros((4, 1, 3, 2), np.float32)
    for index, vector in enumerate([(1, 0), (1, 0.1), (0, 1), (0.1, 1)]):
        expected[index, 0] = vector
    swapped = {1: 2, 2: 1}
    result, _, _ = scored("encoder", expected, np.ones((4, 3), bool), lambda i, p: expected[swapped.get(i, i)])
    found = figures(result)
    assert found["top1_agreement"] == 0.0 and "kl" not in found


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            lambda i, p: np.where(p == p[0, 0, 0], np.nan, p),
            r"input 0 holds 1 values that are NaN or infinite \(of 12\)",
        ),
        (lambda i, p: p[:, :2], r"output 'logits' of input 0 has shape \(1, 2, 3\), the reference \(1, 4, 3\)"),
    ],
)
def test_a_broken_output_is_said(scored, answer, text):
    expected = RNG.standard_normal((2, 1, 4, 3)).astype(np.float32)
    with pytest.raises(StageError, match=text):
        scored("causal_lm", expected, np.ones((2, 4), bool), answer)


def test_a_missing_output_is_named():
    with pytest.raises(StageError, match="gave no output 'logits'; it gave hidden"):
        score.check_output("logits", {"hidden": np.zeros(1)}, (1,), 0)


@pytest.mark.parametrize("task", ["tensors", "encoder"])
def test_psnr_is_of_all_outputs_together_and_the_worst_of_several_stands_beside_it(tmp_path, monkeypatch, task):
    """One meaning for families and for models of the user's own; an output of large values hides the error of a small one."""
    rng = np.random.default_rng(4)
    expected = {
        "large": 1000 * rng.standard_normal((2, 1, 4, 3)).astype(np.float32),
        "small": rng.standard_normal((2, 1, 4, 3)).astype(np.float32),
    }
    made = {"large": expected["large"], "small": expected["small"] + np.float32(0.5)}
    np.savez(tmp_path / "outputs.npz", **expected)
    np.savez(tmp_path / "inputs.npz", x=np.zeros((2, 1, 4), np.int32), valid=np.ones((2, 4), bool))
    planes = [{name: array[index] for name, array in made.items()} for index in range(2)]
    fake = Fake(lambda index, plane: plane, planes)
    monkeypatch.setattr(runtimes, "get", lambda _name: SimpleNamespace(load=lambda params, inputs: fake))
    (tmp_path / "out").mkdir()
    params = {"model": {"task": task, "arch": {}}, "runtime": "fake"}
    result = score.run(params, {"reference": tmp_path}, tmp_path / "out")
    found, units = figures(result), {entry.name: entry.unit for entry in result.metrics}

    together, other = (np.concatenate([side["large"].ravel(), side["small"].ravel()]) for side in (expected, made))
    assert found["psnr_db"] == pytest.approx(psnr_db(reference=together, candidate=other))
    assert found["psnr_worst_db"] == pytest.approx(psnr_db(reference=expected["small"], candidate=made["small"]))
    assert found["psnr_db"] > 60 > 20 > found["psnr_worst_db"]
    assert found["cosine"] == pytest.approx(cosine(reference=together, candidate=other))
    assert units["psnr_db"] == units["psnr_worst_db"] == "dB"
    assert result.realised["outputs"]["large"]["psnr_db"] == 200
    assert result.realised["outputs"]["small"]["psnr_db"] == found["psnr_worst_db"]
