"""Chunked computes the bits of the whole: every family in both variants, every recipe of the twelve, 2, 3, 4 and 8 chunks."""

import numpy as np
import pytest
import yaml
from tiny import option

from ane_sweep.bridge import recipes
from ane_sweep.mil import graph, package
from ane_sweep.mil.cuts import SLACK
from ane_sweep.mil.line import line_up
from ane_sweep.planner import options
from ane_sweep.planner.paths import conf_dir
from ane_sweep.worker.feeds.arrays import Inputs
from ane_sweep.worker.runtimes import reference as runtime
from ane_sweep.worker.stages import calibrate, chunk, compress, convert, reference
from tests.bench import families

OPTIONS = {o["name"]: o for o in (*families.tiny_options(), option("probe-tiny"))}
TWELVE = yaml.safe_load((conf_dir() / "sweep" / "recipes.yaml").read_text())["axes"]["precision"][1:]
IN_CI = ("p4", "w8a8")
WANTED = {"by": "bytes", "own": "none", "pipeline": "manual"}


OWN = {"features": "none", "encoder": "embeddings", "text_encoder": "embeddings", "image_classifier": "head",
       "image_encoder": "none", "audio_encoder": "none"}  # fmt: skip


def made(name, variant, folder, target="iOS18"):
    """(folder of the program, folder of the reference)."""
    model = {key: OPTIONS[name][key] for key in ("family", "task", "arch")}
    weights = {"kind": "random", "digest": "random:0", "seed": 0}
    task = {"model": model, "weights": weights, "seq_len": 32, "options": {}}
    program, told = folder / "program", folder / "reference"
    program.mkdir()
    told.mkdir()
    convert.run({**task, "variant": variant, "target": target, "compute": "fp16"}, {}, program)
    reference.run({**task, "texts": {"count": 2, "seed": 0, "text": "", "tokenizer": None}}, {}, told)
    return program, told


def check(program, told, folder, **how) -> None:
    """All counts on nets with at least 8 cut points; balance wherever no single tensor forbids it."""
    feeds = Inputs(told)[0]
    whole = runtime.load({}, {"program": program}).predict(feeds)
    assert len(line_up(graph.load(package.program_paths(program)[0])).positions) >= 8
    for count in (2, 3, 4, 8):
        out = folder / "_".join(map(str, (count, *how.values())))
        out.mkdir()
        facts = chunk.run({**WANTED, "count": count, **how}, {"program": program}, out).facts
        loaded = runtime.load({}, {"program": out})
        assert loaded.realised["chunks"] == count == facts["chunks"]
        found = loaded.predict(feeds)
        assert list(found) == list(whole)
        for name in whole:
            np.testing.assert_array_equal(found[name], whole[name], strict=True)
        if how.get("own", "none") == "none":
            assert_balanced(facts)


def assert_balanced(facts) -> None:
    """Within 10 % of an equal share; a chunk that one tensor fills, or that whole tensors round up, is no larger than
    that."""
    share = sum(facts["chunk_bytes"]) / facts["chunks"]
    assert max(facts["chunk_bytes"]) <= max(1.1 * share, (1 + SLACK) * share + facts["largest_tensor_bytes"])


EVERY = [(name, variant) for name in OPTIONS for variant in ("original", "split_einsum")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "variant"), EVERY)
def test_every_family(name, variant, tmp_path):
    program, told = made(name, variant, tmp_path)
    check(program, told, tmp_path)
    check(program, told, tmp_path, pipeline="coreml")
    own = OWN.get(OPTIONS[name]["task"], "both")
    for count in (3, 4):
        out = tmp_path / f"own_{count}"
        out.mkdir()
        facts = chunk.run({**WANTED, "count": count, "own": own}, {"program": program}, out).facts
        assert facts["chunks"] == count
        found = runtime.load({}, {"program": out}).predict(Inputs(told)[0])
        whole = runtime.load({}, {"program": program}).predict(Inputs(told)[0])
        assert all(np.array_equal(found[key], whole[key]) for key in whole)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    return made("tiny-gpt2", "split_einsum", tmp_path_factory.mktemp("gpt2"))


def compressed(gpt2, name, folder):
    program, told = gpt2
    weights = options.shipped("precision", name)["weights"]
    recipe = recipes.canonical({**weights, "min_elements": 64})
    upstream = {"program": program}
    if (wanted := recipes.calibration(recipe)) is not None:
        upstream["calibration"] = folder / "calibration"
        upstream["calibration"].mkdir()
        calibrate.run(wanted, {"program": program, "reference": told}, upstream["calibration"])
    out = folder / "compressed"
    out.mkdir()
    compress.run({"recipe": recipe}, upstream, out)
    return out, told


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.ci if name in IN_CI else ()) for name in TWELVE])
def test_every_recipe(gpt2, name, tmp_path):
    program, told = compressed(gpt2, name, tmp_path)
    check(program, told, tmp_path)
    check(program, told, tmp_path, pipeline="coreml")
