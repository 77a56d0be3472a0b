"""cache=stateful, converted: two functions in one package, driven by the stages as one program."""

import json

import numpy as np
import pytest
from tiny import option

from ane_sweep.bridge.building import DECODE, PREFILL
from ane_sweep.mil import package
from ane_sweep.worker import runtimes
from ane_sweep.worker.stages import chunk, convert, latency, reference, score

SEQ = 32
MODEL = {key: value for key, value in option("tiny-gpt2").items() if key in ("family", "task", "arch")}
COMMON = {"model": MODEL, "weights": {"kind": "random", "digest": "random:0", "seed": 0}, "seq_len": SEQ}
RUN = {"model": MODEL, "runtime": "reference", "compute_units": None}
CACHED = {**RUN, "options": {"cache": "stateful"}}
VARIANTS = ["split_einsum", pytest.param("original", marks=[pytest.mark.slow, pytest.mark.ci])]


@pytest.fixture(scope="module", params=VARIANTS)
def made(request, tmp_path_factory):
    """Folders of the converted program with and without a cache, and of the reference."""
    folder = tmp_path_factory.mktemp("made")
    places = {name: folder / name for name in ("plain", "cached", "reference")}
    for place in places.values():
        place.mkdir()
    task = {**COMMON, "variant": request.param, "target": "iOS18", "compute": "fp16"}
    # Ids as fp16 as well: what turns them back must not rename the states.
    facts = {
        "plain": convert.run(task, {}, places["plain"]).facts,
        "cached": convert.run({**task, "options": {"cache": "stateful", "inputs": "fp16"}}, {}, places["cached"]).facts,
    }
    wish = {"count": 2, "seed": 0, "text": "", "tokenizer": None}
    reference.run({**COMMON, "texts": wish, "options": {}}, {}, places["reference"])
    return places | {"facts": facts, "variant": request.param}


def figures(result) -> dict:
    return {entry.name: entry.value for entry in result.metrics}


def scored(params: dict, program, made, out) -> dict:
    out.mkdir()
    return figures(score.run(params, {"program": program, "reference": made["reference"]}, out))


@pytest.mark.slow
@pytest.mark.ci
def test_one_package_holds_both_functions_and_one_copy_of_the_weights(made):
    spec = package.read(made["cached"] / "model.mlpackage").spec
    assert sorted(spec.mlProgram.functions) == [DECODE, PREFILL]
    assert spec.description.defaultFunctionName == DECODE
    described = {function.name: function for function in spec.description.functions}
    assert [feature.name for feature in described[DECODE].input] == ["input_ids", "cache_position"]
    assert [feature.name for feature in described[PREFILL].input] == ["input_ids"]
    states = [[feature.name for feature in described[name].state] for name in (PREFILL, DECODE)]
    assert states[0] == states[1] and len(states[0]) == 4
    sizes = [(made[name] / "model.mlpackage/Data/com.apple.CoreML/weights/weight.bin").stat().st_size
             for name in ("plain", "cached")]  # fmt: skip
    # `original` looks positions up in the whole table (65,536 bytes); a second copy of all would be 335,000 bytes more.
    assert sizes[1] < sizes[0] + 80_000
    assert made["facts"]["cached"]["ops"] > made["facts"]["plain"]["ops"]


@pytest.mark.slow
@pytest.mark.ci
def test_decoding_is_as_close_to_torch_as_one_forward_pass(made, tmp_path):
    plain = scored(RUN, made["plain"], made, tmp_path / "plain")
    cached = scored(CACHED, made["cached"], made, tmp_path / "cached")
    assert cached["psnr_db"] > 55 and abs(cached["psnr_db"] - plain["psnr_db"]) < 3
    assert cached["top1_agreement"] == plain["top1_agreement"] == 1


@pytest.mark.slow
@pytest.mark.ci
def test_steps_read_the_states(made):
    """Another prompt, the same last tokens: the decoded logits differ, so it is the cache that they come from."""
    with np.load(made["reference"] / "inputs.npz") as stored:
        ids = stored["input_ids"][0]
    runtime = runtimes.load(CACHED, {"program": made["cached"]})
    said = [runtime.predict({"input_ids": tokens})["logits"] for tokens in (ids, np.roll(ids, 1, axis=1))]
    again = runtime.predict({"input_ids": ids})["logits"]
    assert np.array_equal(said[0], again) and np.abs(said[0] - said[1])[:, -1].max() > 1e-2
    other = ids.copy()
    other[:, 0] = (other[:, 0] + 1) % 1000
    assert np.abs(runtime.predict({"input_ids": other})["logits"] - said[0])[:, -1].max() > 1e-3


@pytest.mark.slow
@pytest.mark.ci
def test_cut_in_two(made, tmp_path):
    """Each state lives in the chunk that uses it, in both functions; the chain computes the same bits."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    cut.mkdir()
    chunk.run({"count": 2, "by": "bytes", "own": "none", "pipeline": "manual"}, {"program": made["cached"]}, cut)
    states = []
    for path in package.program_paths(cut):
        spec = package.read(path).spec
        assert sorted(function.name for function in spec.description.functions) == [DECODE, PREFILL]
        named = [sorted(feature.name for feature in f.state) for f in spec.description.functions]
        assert named[0] == named[1]
        states.append(named[0])
    assert sorted(states[0] + states[1]) == ["key_cache_0", "key_cache_1", "value_cache_0", "value_cache_1"]
    assert states[0] and states[1]
    scored(CACHED, made["cached"], made, whole)
    scored(CACHED, cut, made, tmp_path / "scored")
    with np.load(whole / "outputs.npz") as first, np.load(tmp_path / "scored" / "outputs.npz") as second:
        assert np.array_equal(first["logits"], second["logits"])


@pytest.mark.slow
@pytest.mark.ci
def test_latency_is_of_a_decoding_step_and_prefill_has_names_of_its_own(made, tmp_path):
    policy = {"warmup": 1, "samples": 4, "max_seconds": 20, "idle_s": None}
    params = {**CACHED, "policy": policy, "round": 1}
    result = latency.run(params, {"program": made["cached"], "reference": made["reference"]}, tmp_path)
    found = figures(result)
    assert found["latency_prefill_median_ms"] > 0 and found["latency_median_ms"] > 0
    assert result.realised["functions"] == [PREFILL, DECODE]
    samples = json.loads((tmp_path / "samples.json").read_text())
    assert len(samples["steady_s"]) == len(samples["prefill"]["steady_s"]) == 4


@pytest.mark.slow
@pytest.mark.ci
def test_torch_eager_decodes_too(made, tmp_path):
    params = {**COMMON, **CACHED, "runtime": "torch_eager", "variant": made["variant"]}
    tmp_path = tmp_path / "out"
    tmp_path.mkdir()
    found = figures(score.run(params, {"reference": made["reference"]}, tmp_path))
    assert found["psnr_db"] > 100 and found["top1_agreement"] == 1
