"""Damaged and hostile checkpoints: settled by the planner, read by a worker. Files are small, whatever they claim."""

import json
import shutil
import struct

import pytest
from fuzz import hostile
from tiny import gpt2_checkpoint, option

from ane_sweep.errors import ConfigError, StageError
from ane_sweep.planner import checkpoints, config
from ane_sweep.planner.settle import plan_for
from ane_sweep.store.cache import open_store

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """One checkpoint in one file, and in two with an index; nanoGPT's form of it. Not to be changed."""
    folder = tmp_path_factory.mktemp("sources")
    whole = gpt2_checkpoint(folder / "whole", n_layer=1)
    shards = gpt2_checkpoint(folder / "shards", n_layer=1)
    (shards / WHOLE).rename(shards / "a.safetensors")
    shutil.copy(shards / "a.safetensors", shards / "b.safetensors")
    names = header(shards / "a.safetensors")
    listed = {name: ("a.safetensors", "b.safetensors")[place % 2] for place, name in enumerate(sorted(names))}
    (shards / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": listed}))
    nano = gpt2_checkpoint(folder / "nano", n_layer=1)
    args = {"n_layer": 1, "n_head": 2, "n_embd": 32, "block_size": 128, "bias": True, "vocab_size": 300}
    (nano / "config.json").write_text(json.dumps(args))
    return [whole, shards, nano]


def header(path):
    content = path.read_bytes()
    return json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]])


def with_header(path, text, draw):
    """The file with another header, its length right or not."""
    content = path.read_bytes()
    data, made = content[8 + struct.unpack("<Q", content[:8])[0] :], text.encode("utf-8", "replace")
    length = draw.choice(hostile.NUMBERS) % 2**64 if draw.random() < 0.1 else len(made)
    path.write_bytes(struct.pack("<Q", length) + made + data)


def damaged(source, folder, draw):
    """A copy of a checkpoint with something wrong in it."""
    copy = folder / "damaged"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy)
    path = draw.choice(sorted(copy.iterdir()))
    if draw.random() < 0.2:
        path.write_bytes(hostile.changed_bytes(path.read_bytes(), draw))
    elif path.suffix == ".json":
        path.write_text(hostile.changed_json(json.loads(path.read_text()), draw), encoding="utf-8", errors="replace")
    else:
        with_header(path, hostile.changed_json(header(path), draw), draw)
    if draw.random() < 0.05:
        (copy / draw.choice((WHOLE, INDEX, "config.json"))).unlink(missing_ok=True)
    return copy


def settled(folder, out):
    try:
        return checkpoints.resolve(
            option("gpt2"), str(folder), seed=0, allow_pickle=False, digests=out / "digests.json"
        )
    except ConfigError as error:
        assert "model=gpt2" in str(error) and len(str(error)) < 20_000
        return None


def test_the_planner_settles_it_or_says_why_not(sources, tmp_path, tries):
    request = config.load(["model=gpt2", f"weights={tmp_path / 'damaged'}", "seq_len=32"])
    with open_store(tmp_path) as store:
        for _, draw in tries:
            damaged(draw.choice(sources), tmp_path, draw)
            try:
                plan = plan_for(request, store, tmp_path)
            except ConfigError as error:
                assert str(error) and len(str(error)) < 20_000
            else:
                assert plan.chains or plan.refused


def test_a_worker_reads_it_or_says_why_not(sources, tmp_path, tries):
    from ane_sweep.worker.models import weights

    for _, draw in tries:
        folder = damaged(draw.choice(sources), tmp_path, draw)
        source = settled(folder, tmp_path)
        arch = option("gpt2")["arch"] | {"n_layer": 1, "n_head": 2, "n_embd": 32, "n_positions": 128, "vocab_size": 300}
        arch = dict(source.arch) if source and draw.random() < 0.5 else arch
        try:
            weights.load_state({"kind": "path"}, folder, {"family": "gpt2", "task": "causal_lm", "arch": arch})
        except StageError as error:
            assert str(error) and len(str(error)) < 20_000
