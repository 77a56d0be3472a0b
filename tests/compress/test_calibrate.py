"""What is measured before compression: ranges through the drop-in, and each weight's cost in the reference runtime."""

import json

import numpy as np
import pytest
from shipped_recipes import SEQ, predicted, recipe

from ane_sweep.mil import graph, package


def test_ranges_are_those_of_all_samples(program, reference, calibration):
    """coremltools keeps the last sample's alone; the reference runtime's own trace says what holds over all."""
    from ane_sweep.runtimes import _reference

    found = json.loads((calibration(recipe("w8a8")) / "ranges.json").read_text())
    model = _reference.load(program("iOS18") / "model.mlpackage")
    with np.load(reference / "calibration.npz") as arrays:
        feeds = arrays["input_ids"]
    seen: dict[str, list[float]] = {}

    def watch(op, made):
        for name, value in made.items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                low, high = seen.get(name, (np.inf, -np.inf))
                seen[name] = [min(low, float(value.min())), max(high, float(value.max()))]

    for feed in feeds[:-1]:
        model.trace({"input_ids": feed}, watch)
    before = dict(seen)
    seen.clear()
    model.trace({"input_ids": feeds[-1]}, watch)
    last = dict(seen)
    seen |= {name: [min(low, last[name][0]), max(high, last[name][1])] for name, (low, high) in before.items()}
    shared = found.keys() & seen.keys()
    assert len(shared) > 20
    for name in shared:
        assert [found[name]["rmin"], found[name]["rmax"]] == pytest.approx(seen[name], rel=1e-3), name
    assert any(seen[name] != pytest.approx(last[name]) for name in shared)


def test_quantized_activations_are_in_the_program_and_it_still_predicts(program, compressed):
    _, folder = compressed(recipe("w8a8"))
    types = [op.type for op in graph.program(package.read(folder / "model.mlpackage")).ops]
    linear = types.count("linear")
    assert types.count("quantize") >= linear and types.count("dequantize") >= linear
    whole, got = predicted(program("iOS18")), predicted(folder)
    snr = 10 * np.log10(np.square(whole).sum() / np.square(got - whole).sum())
    # Activations of 4 sigma in 8 bits: 48 - 20 log10(4 / sqrt(3)) = 41 dB each; some 20 of them and the weights add up.
    assert 20 < snr < 60


@pytest.mark.slow
@pytest.mark.ci
def test_the_sensitivity_of_each_weight_and_the_curve(calibration):
    found = json.loads((calibration(recipe("mixed4")) / "sensitivity.json").read_text())
    assert len(found["weights"]) == 10 and found["candidates"] == [2, 3, 4, 6, 8]
    for entry in found["weights"].values():
        noise = [entry["noise"][str(bits)] for bits in found["candidates"]]
        assert noise == sorted(noise, reverse=True) and noise[-1] > 0
    averages = [point["average_bits"] for point in found["curve"]]
    levels = [point["psnr_db"] for point in found["curve"]]
    assert averages == sorted(averages, reverse=True) and levels == sorted(levels, reverse=True)
    for point in found["curve"]:  # noises of ten weights taken as independent: off by a factor of 2 at most
        assert abs(point["psnr_db"] - point["expected_db"]) < 3


@pytest.mark.slow
@pytest.mark.ci
def test_mixed_bits_keep_their_average_and_cost_less_than_the_same_bits_everywhere(compressed, calibration):
    _, folder = compressed(recipe("mixed4"))
    done = json.loads((folder / "compress.json").read_text())["settings"]
    found = json.loads((calibration(recipe("mixed4")) / "sensitivity.json").read_text())["weights"]
    total = sum(entry["elements"] for entry in found.values())
    assert done.keys() == found.keys()
    assert sum(found[name]["elements"] * done[name]["bits"] for name in done) / total <= 4
    mixed, plain = (
        sum(found[n]["noise"][str(bits)] for n, bits in each.items())
        for each in ({n: s["bits"] for n, s in done.items()}, dict.fromkeys(found, 4))
    )
    assert mixed < plain


def test_swapped_weights_are_what_the_compressed_program_computes(program, compressed, reference):
    """So a sensitivity is measured on the very numbers that a compressed program has."""
    from shipped_recipes import FEED

    from ane_sweep.compress import passes, sensitivity, settings

    path = program("iOS18") / "model.mlpackage"
    probe = sensitivity.Probe(path, [FEED], np.ones((1, SEQ), bool))
    known = {weight.name: weight for weight in settings.weights_of(passes.program_of(path))}
    done = settings.resolve(list(known.values()), recipe("p4")).settings
    close = probe.closeness({name: sensitivity.palettized(known[name].value, 4) for name in done})
    whole, got = predicted(program("iOS18"))[0], predicted(compressed(recipe("p4"))[1])[0]
    assert close.square_error == pytest.approx(float(np.square((whole - got).astype(np.float64)).sum()), rel=1e-12)
