"""Stage chunk on converted networks: same bits for every count, and packages that coremltools takes."""

import math
from pathlib import Path

import numpy as np
import pytest

from ane_sweep.mil import graph, package
from ane_sweep.worker.runtimes import reference
from ane_sweep.worker.stages import chunk

CASES = [("fp16", "iOS15"), ("fp16", "iOS18"), ("fp32", "iOS15"), ("fp32", "iOS18")]
IDS = (np.arange(12, dtype=np.int32)[None] * 7) % 90


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """(compute, target) -> folder with model.mlpackage: a tiny transformer with a tied head and an early output."""
    import coremltools as ct
    import torch
    from torch import nn
    from torch.nn import functional

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
            self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)

        def forward(self, x):
            q, k, v = (part.reshape(1, 12, 2, 16).transpose(1, 2) for part in self.qkv(self.norms[0](x)).split(32, -1))
            mixed = ((q @ k.transpose(-1, -2)) / 4).softmax(-1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(1, 12, 32))
            return x + self.down(functional.gelu(self.up(self.norms[1](x))))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(90, 32)
            self.layers = nn.ModuleList([Layer() for _ in range(4)])

        def forward(self, ids):
            x = early = self.table(ids)
            for index, layer in enumerate(self.layers):
                x = layer(x)
                early = torch.tanh(x) if index == 1 else early
            return functional.linear(x, self.table.weight), early

    torch.manual_seed(0)
    traced = torch.jit.trace(Net().eval(), torch.from_numpy(IDS))
    folders = {}
    for compute, target in CASES:
        folders[compute, target] = tmp_path_factory.mktemp(f"{compute}_{target}")
        width = np.float16 if compute == "fp16" and target != "iOS15" else np.float32
        model = ct.convert(
            traced,
            inputs=[ct.TensorType("ids", IDS.shape, np.int32)],
            outputs=[ct.TensorType("logits", dtype=width), ct.TensorType("early", dtype=width)],
            minimum_deployment_target=getattr(ct.target, target),
            compute_precision=ct.precision.FLOAT16 if compute == "fp16" else ct.precision.FLOAT32,
            skip_model_load=True,
        )
        model.save(str(folders[compute, target] / "model.mlpackage"))
    return folders


def cut(folder: Path, out: Path, count: int | str, **more):
    out.mkdir()
    return chunk.run(
        {"count": count, "by": "bytes", "own": "none", "pipeline": "manual", **more}, {"program": folder}, out
    )


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("compute", "target"), CASES)
def test_chunked_is_the_whole_to_the_last_bit(converted, tmp_path, compute, target):
    folder = converted[compute, target]
    whole = reference.load({}, {"program": folder}).predict({"ids": IDS})
    assert set(whole) == {"logits", "early"}
    for count in (2, 3, 4, 8):
        out = tmp_path / str(count)
        facts = cut(folder, out, count).facts
        runtime = reference.load({}, {"program": out})
        assert runtime.realised["chunks"] == count == len(facts["chunk_bytes"])
        found = runtime.predict({"ids": IDS})
        assert list(found) == list(whole)
        for name in whole:
            np.testing.assert_array_equal(found[name], whole[name])


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("compute", "target"), CASES)
def test_coremltools_takes_the_chunks(converted, tmp_path, compute, target):
    """Its own loader parses every chunk, weights included, and its features are such as the target has."""
    import coremltools as ct
    from coremltools.converters.mil.frontend.milproto.load import load

    cut(converted[compute, target], tmp_path / "out", 3)
    array = ct.proto.FeatureTypes_pb2.ArrayFeatureType
    seen = set()
    for path in package.program_paths(tmp_path / "out"):
        model = ct.models.MLModel(str(path), skip_model_load=True)
        spec = model.get_spec()
        features = [*spec.description.input, *spec.description.output]
        seen |= {feature.type.multiArrayType.dataType for feature in features}
        program = load(spec, spec.specificationVersion, model.weights_dir)
        assert list(program.functions) == ["main"]
        assert [v.name for v in program.functions["main"].outputs] == [f.name for f in spec.description.output]
    assert (array.FLOAT16 in seen) == (compute == "fp16" and target != "iOS15")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("compute", "target"), CASES)
def test_facts(converted, tmp_path, compute, target):
    facts = cut(converted[compute, target], tmp_path / "out", 2).facts
    assert max(facts["chunk_bytes"]) <= 1.1 * sum(facts["chunk_bytes"]) / 2
    assert facts["cut_points"] > 50
    first, last = (package.read(path).spec for path in package.program_paths(tmp_path / "out"))
    made = {feature.name for feature in first.description.output}
    width = 2 if compute == "fp16" and target != "iOS15" else 4
    handed_over = [f.type.multiArrayType for f in last.description.input if f.name in made]
    assert facts["boundary_bytes"] == [sum(width * math.prod(array.shape) for array in handed_over)]
    lacks_fp16 = compute == "fp16" and target == "iOS15"
    assert all(feature.name.endswith("_as_fp32") == lacks_fp16 for feature in last.description.input)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("compute", "target"), CASES)
def test_one_pipeline_package_computes_the_same_bits(converted, tmp_path, compute, target):
    from ane_sweep.placement import programs

    folder = converted[compute, target]
    whole = reference.load({}, {"program": folder}).predict({"ids": IDS})
    manual, merged = tmp_path / "manual", tmp_path / "merged"
    facts = cut(folder, manual, 3).facts
    assert cut(folder, merged, 3, pipeline="coreml").facts == facts
    (path,) = package.program_paths(merged)
    runtime = reference.load({}, {"program": merged})
    assert runtime.realised["chunks"] == 3
    found = runtime.predict({"ids": IDS})
    assert list(found) == list(whole), "early outputs too"
    for name in whole:
        np.testing.assert_array_equal(found[name], whole[name], strict=True)
    seen, expected = programs.load_chain([path]), programs.load_chain(package.program_paths(manual))
    assert [p.chunk for p in seen] == ["chunk_01", "chunk_02", "chunk_03"] == [p.chunk for p in expected]
    assert [p.weight_file_bytes for p in seen] == [p.weight_file_bytes for p in expected]
    assert [len(p.sites) for p in seen] == [len(p.sites) for p in expected]


@pytest.mark.slow
@pytest.mark.ci
def test_coremltools_takes_the_pipeline(converted, tmp_path):
    """Its own make_pipeline of the same chunks names the same inputs and weight files; it would lose `early`."""
    import coremltools as ct

    cut(converted["fp16", "iOS18"], tmp_path / "manual", 2)
    cut(converted["fp16", "iOS18"], tmp_path / "merged", 2, pipeline="coreml")
    parts = [ct.models.MLModel(str(p), skip_model_load=True) for p in package.program_paths(tmp_path / "manual")]
    theirs = ct.models.utils.make_pipeline(*parts).get_spec()
    (path,) = package.program_paths(tmp_path / "merged")
    ours = ct.models.MLModel(str(path), skip_model_load=True).get_spec()
    assert [f.name for f in ours.description.input] == [f.name for f in theirs.description.input]
    assert {f.name for f in ours.description.output} >= {"logits", "early"}
    assert len(ours.pipeline.models) == len(theirs.pipeline.models) == 2
    files = sorted(p.name for p in path.rglob("*.bin"))
    assert files == ["0-weight.bin", "1-weight.bin"]
    assert all(
        f"weights/{index}-weight.bin" in str(model.mlProgram) for index, model in enumerate(ours.pipeline.models)
    )


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize(("compute", "target"), [("fp16", "iOS18"), ("fp32", "iOS15")])
def test_bisect_model_is_there_to_be_compared_with(converted, tmp_path, compute, target):
    """It cuts elsewhere, hands over fp32 and computes an early output's whole prefix again; its sums are the same."""
    folder = converted[compute, target]
    ours, theirs = cut(folder, tmp_path / "ours", 2).facts, cut(folder, tmp_path / "theirs", 2, pipeline="bisect").facts
    assert [p.name for p in (tmp_path / "theirs").iterdir()] and len(package.program_paths(tmp_path / "theirs")) == 2
    assert theirs["chunks"] == 2 and theirs["boundary_bytes"][0] >= ours["boundary_bytes"][0]
    assert max(theirs["chunk_bytes"]) >= max(ours["chunk_bytes"])
    runtime = reference.load({}, {"program": tmp_path / "theirs"})
    whole = reference.load({}, {"program": folder}).predict({"ids": IDS})
    found = runtime.predict({"ids": IDS})
    for name in whole:
        np.testing.assert_allclose(found[name], whole[name], atol=1e-2)


@pytest.mark.slow
@pytest.mark.ci
def test_what_is_shared_out_decides_where_it_is_cut(converted, tmp_path):
    facts = {
        by: cut(converted["fp16", "iOS18"], tmp_path / by, 3, by=by, chip="m1").facts
        for by in ("bytes", "layers", "time")
    }
    assert max(facts["bytes"]["chunk_bytes"]) <= min(max(facts[by]["chunk_bytes"]) for by in ("layers", "time"))
    layers = [
        sum(op.type in ("linear", "matmul", "conv") for op in graph.load(path).ops)
        for path in package.program_paths(tmp_path / "layers")
    ]
    assert sum(layers) == 4 * 6 + 1 and max(layers) == 9, "no chunk has more than an equal share, rounded up"
    whole = reference.load({}, {"program": converted["fp16", "iOS18"]}).predict({"ids": IDS})
    for by in facts:
        found = reference.load({}, {"program": tmp_path / by}).predict({"ids": IDS})
        assert all(np.array_equal(found[name], whole[name]) for name in whole)


@pytest.mark.slow
@pytest.mark.ci
def test_time_is_the_placement_rooms_estimate_of_each_op(converted):
    from ane_sweep.mil.line import line_up
    from ane_sweep.placement import predict

    path = converted["fp16", "iOS18"] / "model.mlpackage"
    found = predict.op_times(path, "m4")
    line = line_up(graph.load(path))
    missing = [op.outputs[0] for op in line.compute if op.outputs[0] not in found]
    assert not missing and all(ms >= 0 for ms in found.values())
    kinds = {op.type: found[op.outputs[0]] for op in line.compute}
    assert kinds["linear"] > kinds["reshape"]


@pytest.mark.slow
@pytest.mark.ci
def test_figures_of_the_cuts_reach_the_record(converted, tmp_path):
    result = cut(converted["fp16", "iOS18"], tmp_path / "out", "auto", program_bytes=60_000, mapped_bytes=None)
    figures = {entry.name: entry.value for entry in result.metrics}
    assert result.realised == {"chunks": result.facts["chunks"]} and result.facts["chunks"] > 1
    assert figures["chunk_bytes_max"] <= 60_000 and figures["chunk_bytes_max"] >= figures["chunk_bytes_ideal"]
    assert figures["boundary_bytes"] == sum(result.facts["boundary_bytes"])
