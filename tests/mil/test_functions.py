"""Packages of several functions: every function cut at the same places, one weight file a chunk, states where they were."""

import numpy as np
import pytest

from ane_sweep.errors import ChunkError
from ane_sweep.mil import chunker, cuts, graph, joint, package, pipeline
from ane_sweep.mil.line import line_up
from ane_sweep.worker.runtimes.reference import ReferenceRuntime

LAYERS, WIDTH = 6, 32
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.standard_normal((50, WIDTH)).astype(np.float16)
WEIGHTS = [(RANDOM.standard_normal((WIDTH, WIDTH)) / 6).astype(np.float16) for _ in range(LAYERS)]
IDS = {"prefill": np.arange(8, dtype=np.int32), "decode": np.array([7], dtype=np.int32)}


def transformer(mil, tokens, *, stateful: bool):
    """A lookup, layers of which each keeps a state (of one row), and the table again as the head."""

    def body(ids, *states):
        mb = mil.mb
        table = mb.const(val=TABLE)
        x = mb.gather(x=table, indices=ids, axis=0)
        for index, weight in enumerate(WEIGHTS):
            x = mb.add(x=x, y=mb.tanh(x=mb.linear(x=x, weight=mb.const(val=weight))))
            if stateful:
                row = mb.reduce_mean(x=x, axes=[0], keep_dims=True)
                kept = mb.coreml_update_state(
                    state=states[index], value=mb.add(x=mb.read_state(input=states[index]), y=row)
                )
                x = mb.add(x=x, y=kept)
            if tokens == 1:  # the other function has an op less a layer
                x = mb.mul(x=x, y=np.float16(0.5))
        return mb.linear(x=x, weight=table, name="logits")

    return body


@pytest.fixture(scope="module")
def merged(mil, tmp_path_factory):
    """One package with the functions decode (the default) and prefill, made by coremltools."""
    from coremltools.models.utils import MultiFunctionDescriptor, save_multifunction

    folder = tmp_path_factory.mktemp("merged")
    descriptor = MultiFunctionDescriptor()
    states = {f"state_{index}": (1, WIDTH) for index in range(LAYERS)}
    for name, ids in IDS.items():
        body = transformer(mil, len(ids), stateful=True)
        mil.save(folder / f"{name}.mlpackage", {"ids": ids}, body, states=states)
        descriptor.add_function(str(folder / f"{name}.mlpackage"), "main", name)
    descriptor.default_function_name = "decode"
    save_multifunction(descriptor, str(folder / "model.mlpackage"))
    return folder / "model.mlpackage"


def steps(paths, function):
    runtime = ReferenceRuntime(list(paths), function=function)
    runtime.reset()
    return [runtime.predict({"ids": IDS[function] + step})["logits"] for step in range(3)]


@pytest.mark.parametrize("count", [2, 3, 4, 8])
def test_each_function_computes_the_same_bits_over_one_weight_file(merged, tmp_path, count):
    facts = chunker.chunk(merged, tmp_path, chunker.ChunkRequest(count))
    paths = package.program_paths(tmp_path)
    assert len(paths) == count == facts["chunks"]
    for function in IDS:
        for made, expected in zip(steps(paths, function), steps([merged], function), strict=True):
            np.testing.assert_array_equal(made, expected, strict=True)
    for path, held in zip(paths, facts["chunk_bytes"], strict=True):
        spec = package.read(path).spec
        assert sorted(spec.mlProgram.functions) == sorted(IDS)
        assert spec.description.defaultFunctionName == "decode"
        used = [states_of(spec, name) for name in IDS]
        assert used[0] == used[1], "a state is in the same chunk of both"
        records = held + 128 * 20  # a header and padding each
        assert held <= (path / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size <= records
    found = [name for path in paths for name in states_of(package.read(path).spec, "prefill")]
    assert sorted(found) == [f"state_{index}" for index in range(LAYERS)]


def states_of(spec, function):
    (described,) = [item for item in spec.description.functions if item.name == function]
    return [feature.name for feature in described.state]


def test_the_same_package_gives_the_same_files(merged, tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        chunker.chunk(merged, tmp_path / name, chunker.ChunkRequest(3))
    files = [path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file()]
    assert len(files) == 9
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_a_cut_that_one_function_lacks_is_no_cut(merged):
    read = package.read(merged)
    lines = [line_up(graph.view_program(read, name)) for name in ("decode", "prefill")]
    both = joint.join(lines)
    assert 0 < len(both.line.positions) < min(len(line.positions) for line in lines)
    for place, places in both.places.items():
        assert places[0] == place and all(p in line.positions for p, line in zip(places, lines, strict=True))
        parted = [{key for names in line.blobs[:p] for key in names} for p, line in zip(places, lines, strict=True)]
        shared = set(lines[0].sizes) & set(lines[1].sizes)
        assert parted[0] & shared == parted[1] & shared
    joined = [both.places[place][1] for place in both.line.positions]
    assert joined == sorted(set(joined)), "in the same order in both"


def test_embedding_and_head_apart(mil, tmp_path):
    """The tied table is in both; what lies between has none of it."""
    source = mil.save(tmp_path / "model.mlpackage", {"ids": IDS["prefill"]}, transformer(mil, 8, stateful=False))
    line = line_up(graph.load(source))
    first, last = cuts.find_embedding_end(line), cuts.find_head_start(line)
    assert (
        line.compute[first - 1].type == "gather"
        and line.compute[last].type == "linear"
        and last == len(line.compute) - 1
    )
    facts = chunker.chunk(source, tmp_path, chunker.ChunkRequest(4, own="both"))
    table = TABLE.nbytes
    assert facts["chunk_bytes"][0] == table and facts["chunk_bytes"][-1] == table + 2 * len(TABLE)
    assert max(facts["chunk_bytes"][1:-1]) < 4 * WEIGHTS[0].nbytes
    whole = ReferenceRuntime([source]).predict({"ids": IDS["prefill"]})["logits"]
    made = ReferenceRuntime(sorted(tmp_path.glob("chunk_*")))
    np.testing.assert_array_equal(made.predict({"ids": IDS["prefill"]})["logits"], whole, strict=True)


def test_what_has_no_embedding_or_head_says_so(mil, tmp_path):
    x = RANDOM.standard_normal((4, WIDTH)).astype(np.float16)
    source = mil.save(tmp_path / "model.mlpackage", {"x": x}, lambda x: mil.mb.tanh(x=mil.mb.relu(x=x)))
    with pytest.raises(ChunkError, match=r"own_chunks=embeddings: model\.mlpackage has no lookup"):
        chunker.chunk(source, tmp_path, chunker.ChunkRequest(2, own="embeddings"))
    with pytest.raises(ChunkError, match=r"own_chunks=head: model\.mlpackage has no projection"):
        chunker.chunk(source, tmp_path, chunker.ChunkRequest(2, own="head"))


def test_auto_keeps_each_chunk_and_their_sum_under_the_limits(mil, tmp_path):
    source = mil.save(tmp_path / "model.mlpackage", {"ids": IDS["prefill"]}, transformer(mil, 8, stateful=False))
    layer = WEIGHTS[0].nbytes + 2 * WIDTH
    for limit in (2 * layer, 3 * layer, 5 * layer, 10**6):
        out = tmp_path / str(limit)
        out.mkdir()
        facts = chunker.chunk(source, out, chunker.ChunkRequest("auto", program_bytes=limit))
        assert max(facts["chunk_bytes"]) <= limit and facts["chunks"] == len(package.program_paths(out))
        assert facts["chunks"] >= -(-sum(facts["chunk_bytes"]) // limit)
    assert facts["chunks"] == 1
    with pytest.raises(ChunkError, match="cannot be cut so that no chunk has more than 2000 bytes"):
        chunker.chunk(source, tmp_path, chunker.ChunkRequest("auto", program_bytes=2000))
    with pytest.raises(ChunkError, match="that can be mapped at once"):
        chunker.chunk(source, tmp_path, chunker.ChunkRequest("auto", program_bytes=10**6, mapped_bytes=10_000))


def test_a_pipeline_holds_no_states_and_no_functions(mil, merged, tmp_path):
    for name, source in (("several", merged), ("states", merged.parent / "prefill.mlpackage")):
        (tmp_path / name).mkdir()
        chunker.chunk(source, tmp_path / name, chunker.ChunkRequest(2))
        with pytest.raises(ChunkError, match="which a pipeline cannot hold; pipeline=manual"):
            pipeline.merge(package.program_paths(tmp_path / name), tmp_path / f"{name}.mlpackage")
