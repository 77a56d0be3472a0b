"""Stage chunk on converted networks: same bits for every count, and packages that coremltools takes."""

import math
from pathlib import Path

import numpy as np
import pytest

from ane_sweep.mil import package
from ane_sweep.runtimes import reference
from ane_sweep.stages import chunk

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
