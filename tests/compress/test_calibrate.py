"""What is measured before compression: ranges through the drop-in, and each weight's cost in the reference runtime."""

import json
import shutil

import numpy as np
import pytest
from shipped_recipes import SEQ, predicted, recipe

from ane_sweep.mil import graph, package
from ane_sweep.worker.params import SensitivityParams


def test_ranges_are_those_of_all_samples(program, reference, calibration):
    """coremltools keeps the last sample's alone; the reference runtime's own trace says what holds over all."""
    from ane_sweep import reference as _reference

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


@pytest.mark.slow
@pytest.mark.ci
def test_quantized_activations_are_in_the_program_and_it_still_predicts(program, compressed):
    _, folder = compressed(recipe("w8a8"))
    types = [op.type for op in graph.view_program(package.read(folder / "model.mlpackage")).ops]
    linear = types.count("linear")
    assert types.count("quantize") >= linear and types.count("dequantize") >= linear
    whole, got = predicted(program("iOS18")), predicted(folder)
    snr = 10 * np.log10(np.square(whole).sum() / np.square(got - whole).sum())
    # Activations of 4 sigma in 8 bits: 48 - 20 log10(4 / sqrt(3)) = 41 dB each; some 20 of them and the weights add up.
    assert 20 < snr < 60


@pytest.mark.slow
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


def plain(path, feeds, valid, values, folder):
    """Closeness by the slow way: a package with `values` written over its weights, loaded and predicted as a whole."""
    from ane_sweep import reference as _reference
    from ane_sweep.stats.psnr import Closeness

    changed = shutil.copytree(path, folder / "changed.mlpackage", dirs_exist_ok=True)
    program = graph.load(changed)
    offset = {op.name: op.proto.attributes["val"].blobFileValue.offset for op in program.ops if op.type == "const"}
    blobs = program.package.blobs(package.WEIGHTS_NAME)
    file = np.memmap(blobs.path, np.uint8, "r+")
    for name, value in values.items():
        record = blobs.record(offset[name])
        file[record.data_offset : record.data_offset + record.size] = value.reshape(-1).view(np.uint8)
    found, whole, other = Closeness(), _reference.load(path), _reference.load(changed)
    for feed, rows in zip(feeds, valid):
        pair = (model.predict(feed)["logits"][0][rows] for model in (whole, other))
        found.add(reference=next(pair), candidate=next(pair))
    return found


@pytest.mark.slow
def test_costs_and_curve_are_those_of_whole_predictions_to_the_last_bit(program, reference, tmp_path):
    from ane_sweep.stats.psnr import recorded_db
    from ane_sweep.worker.compress import passes, sensitivity, settings
    from ane_sweep.worker.compress.palettes import kmeans

    path = program("iOS18") / "model.mlpackage"
    with np.load(reference / "calibration.npz") as arrays:
        feeds, valid = [{"input_ids": ids} for ids in arrays["input_ids"][:3]], arrays["valid"][:3].copy()
    valid[1, 20:] = False
    known = {weight.name: weight.value for weight in settings.list_weights(passes.load_program(path))}

    def slow(bits):
        values = {}
        for name, width in bits.items():
            table, index = kmeans(known[name], width)
            values[name] = table[index]
        return plain(path, feeds, valid, values, tmp_path)

    found = sensitivity.measure(path, feeds, valid, SensitivityParams([2, 3], 2048, []))
    assert len(found["weights"]) == 10 and len(found["curve"]) == 3
    for name, entry in found["weights"].items():
        for bits, noise in entry["noise"].items():
            expected = slow({name: int(bits)})
            assert noise == expected.square_error / expected.count > 0, (name, bits)
            assert found["peak"] == expected.peak
    for point in found["curve"]:
        assert point["psnr_db"] == recorded_db(slow(point["bits"]).psnr_db())


def test_swapped_weights_are_what_the_compressed_program_computes(program, compressed, reference):
    """So a sensitivity is measured on the very numbers that a compressed program has."""
    from shipped_recipes import FEED

    from ane_sweep.worker.compress import passes, sensitivity, settings
    from ane_sweep.worker.compress.palettes import kmeans

    path = program("iOS18") / "model.mlpackage"
    probe = sensitivity.SensitivityProbe(path, [FEED], np.ones((1, SEQ), bool))
    known = settings.list_weights(passes.load_program(path))
    done = settings.resolve(known, recipe("p4")).settings
    tables = {weight.name: kmeans(weight.value, 4) for weight in known if weight.name in done}
    values = {w.name: np.take(*tables[w.name]).reshape(w.value.shape) for w in known if w.name in done}
    close = probe.closeness(values).together()
    whole, got = predicted(program("iOS18"))[0], predicted(compressed(recipe("p4"))[1])[0]
    assert close.square_error == pytest.approx(float(np.square((whole - got).astype(np.float64)).sum()), rel=1e-12)


def test_a_weight_whose_op_and_value_are_named_apart_is_measured(tmp_path):
    """coremltools writes a constant called `7_w` as the op `op_7_w` with the value `var_7_w`."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder as mb

    from ane_sweep.worker.compress import sensitivity

    @mb.program(input_specs=[mb.TensorSpec((1, 32, 1, 8))], opset_version=ct.target.iOS18)
    def net(x):
        weight = np.random.default_rng(0).standard_normal((64, 32, 1, 1)).astype(np.float32)
        return mb.conv(x=x, weight=mb.const(val=weight, name="7_w"), name="y")

    path = tmp_path / "net.mlpackage"
    ct.convert(net, minimum_deployment_target=ct.target.iOS18, skip_model_load=True).save(str(path))
    feed = {"x": np.random.default_rng(1).standard_normal((1, 32, 1, 8)).astype(np.float32)}
    wanted = SensitivityParams([2, 8], 64, [])
    found = sensitivity.measure(path, [feed], np.ones((1, 1), bool), wanted)
    ((name, entry),) = found["weights"].items()
    assert name.startswith("op_7_w") and entry["noise"]["2"] > 10 * entry["noise"]["8"] > 0
