"""Option files as people, editors and strangers leave them: one sentence with the file's name, before anything is built."""

import os

import pytest
import yaml

from ane_sweep.__main__ import main
from ane_sweep.planner import config, option_files, options
from ane_sweep.planner.paths import conf_dir

TINY = yaml.safe_dump(options.shipped("model", "tiny-gpt2"), sort_keys=False).replace("name: tiny-gpt2", "name: mine")
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi")
)
CHAIN = "a: &x0 [1]\n" + "".join(f"k{i}: &x{i} [*x{i - 1}]\n" for i in range(1, 400))
FILES = {
    "tabs": (TINY.replace("  count: 2", "\tcount: 2"), "cannot start any token (line "),
    "duplicate keys": (TINY + "size: twice\n", "found duplicate key size (line "),
    "UTF-16": (TINY.encode("utf-16"), "it is no UTF-8 text"),
    "Latin-1": ((TINY + "# \xe9\n").encode("latin-1"), "it is no UTF-8 text"),
    "a NUL": (TINY + "hub: \0\n", "control characters are not allowed"),
    "a NUL, escaped": (TINY.replace("size: tiny", 'size: "a\\0b"'), "text cannot hold a NUL"),
    "a scalar": ("just text\n", "it holds no `key: value` pairs"),
    "a list": ("- 1\n- 2\n", "it holds no `key: value` pairs"),
    "two documents": ("a: 1\n---\nb: 2\n", "expected a single document"),
    "an alias to itself": ("a: &a [*a]\n", "it holds itself through an alias (line 1)"),
    "a bomb": (BOMB, "more than 5,000 values"),
    "a chain of aliases": (TINY + CHAIN, "more than 5,000 values"),
    "5,000 digits": (TINY.replace("layers: 2", "layers: " + "9" * 5000), "a number of 5,000 digits"),
    "5,000 hexadecimal digits": (TINY.replace("layers: 2", "layers: 0x" + "f" * 5000), "a number of 5,002 digits"),
    "deep nesting": ("a: " + "[" * 100 + "]" * 100 + "\n", "it is nested more than 32 deep (line 1)"),
    "very deep nesting": ("a: " + "[" * 5000 + "]" * 5000 + "\n", " nest"),  # refused by PyYAML itself from 6.0.4 on
    "deep blocks": ("".join(" " * i + "a:\n" for i in range(400)), "it is nested more than 32 deep"),
    "a large file": ("# " + "x" * 1_000_000, "bytes, more than 1,000,000"),
    "an unknown tag": ("name: !!python/object/apply:os.system [true]\n", "could not determine a constructor"),
    "a path": (TINY.replace("size: tiny", "size: !!python/object/apply:pathlib.Path [a]"), "expected text, got"),
    "bytes": (TINY.replace("size: tiny", "size: !!binary aGk="), "expected text, got bytes"),
    "a date": (TINY.replace("size: tiny", "size: 2026-01-01"), None),
    "keys of two kinds": (TINY.replace("arch:", "arch:\n  1: a"), "expected keys of text"),
    "an unclosed quote": ('name: "mine\n', "unexpected end of stream"),
    "an interpolation of nothing": (TINY.replace("size: tiny", "size: ${nosuch}"), "an interpolation ${...}"),
    "nothing": ("", "model.family: missing"),
}  # fmt: skip


def folder_with(tmp_path, group: str, content: str | bytes) -> str:
    (tmp_path / group).mkdir()
    path = tmp_path / group / "mine.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(tmp_path)


@pytest.mark.parametrize("key", ["out", "latency", "rewrite"])
def test_a_folder_beside_the_options_may_have_the_name_of_a_key(key, tmp_path):
    """A second sweep finds the outputs of the first in its folder of options."""
    folder = folder_with(tmp_path, "model", TINY)
    words = ["--config-dir", folder, "model=mine", "weights=random", f"out={tmp_path / 'out'}", "latency=off"]
    (first,) = config.load(words).cells
    (tmp_path / key).mkdir()
    assert config.load(words).cells == [first]


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("kind", FILES)
def test_a_strange_file_is_a_sentence(kind, tmp_path, capsys):
    content, said = FILES[kind]
    folder = folder_with(tmp_path, "model", content)
    code = main(["plan", "--config-dir", folder, "model=mine", "weights=random", f"out={tmp_path / 'out'}"])
    error = capsys.readouterr().err
    if said is None:
        assert code == 0, error
        return
    assert code == 2 and said in error and "Traceback" not in error and len(error) < 3000, error
    assert any(word in error for word in ("mine.yaml", "model=mine", "model.", "interpolation"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("axes: {1: [2]}\n", "sweep: 1 is no key; expected text"),
        ("exclude: [{1: 2}]\n", "sweep: 1 is no key"),
        ("axes: {chunks: 3}\n", "sweep.axes.chunks: expected a list of values, got 3"),
        ("axes: {model: [2, [3], tiny-gpt2]}\n", "model=2: unknown"),
        ("axes: {model.arch.nosuch: [1, 2]}\n", "model.arch.nosuch: model=minilm has no such key"),
        ("axes: {chunks.x: [1]}\n", "chunks.x: nothing reads this key"),
        ("axes: {lanes: [1, 2]}\n", "lanes: several values, but it is a setting"),
        ("axes: {seed: [1]}\npairs: [{seed: [2], chunks: [1]}]\n", "seed: several values, and that twice"),
        ("axes: {seed: [" + ",".join(map(str, range(20_000))) + "]}\n", "more than 5,000 values"),
        (
            "axes: {seed: [1, 2, 3, 4], chunks: [1, 2, 3, 4]}\n",
            "16 cells (seed: 4 x chunks: 4), more than max_cells=15",
        ),
        ("- 1\n", "it holds no `key: value` pairs"),
    ],
)
def test_a_strange_matrix_is_a_sentence(content, said, tmp_path, capsys):
    folder = folder_with(tmp_path, "sweep", content)
    assert main(["plan", "--config-dir", folder, "+sweep=mine", "max_cells=15", f"out={tmp_path / 'out'}"]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_a_pipe_is_not_waited_for(tmp_path, capsys):
    (tmp_path / "model").mkdir()
    os.mkfifo(tmp_path / "model" / "mine.yaml")
    assert main(["plan", "--config-dir", str(tmp_path), "model=mine", f"out={tmp_path / 'out'}"]) == 2
    assert "model=mine: unknown" in capsys.readouterr().err


def test_aliases_that_stand_for_little_are_as_good_as_written_out(tmp_path):
    text = TINY.replace("layers: 2", "layers: &two 2").replace("n_layer: 2", "n_layer: *two")
    folder = folder_with(tmp_path, "model", text)
    (cell,) = config.load(["--config-dir", folder, "model=mine"]).cells
    assert cell.model_options["layers"] == cell.model_options["arch"]["n_layer"] == 2


def test_every_shipped_file_passes():
    for path in conf_dir().rglob("*.yaml"):
        option_files.check(path)
        assert yaml.safe_load(path.read_text(encoding="utf-8"))


def test_hydras_own_view_says_the_same_of_a_wrong_word(tmp_path, capsys):
    folder = folder_with(tmp_path, "model", BOMB)
    for words, said in (
        (["precision=8"], "precision=8: unknown"),
        (["--config-dir", folder, "model=mine"], "5,000 values"),
    ):
        assert main(["--cfg", "job", *words]) == 2
        error = capsys.readouterr().err
        assert said in error and "Traceback" not in error
    assert main(["--cfg", "job", "model=tiny-gpt2"]) == 0
    assert "n_layer: 2" in capsys.readouterr().out


@pytest.mark.parametrize("named", [True, False])
def test_hydras_own_view_shows_the_option_that_a_sweep_takes(named, tmp_path, monkeypatch, capsys):
    """One of the user's folder that has the name of a shipped one; ./conf is taken unnamed."""
    folder = tmp_path / "conf" / "precision"
    folder.mkdir(parents=True)
    shipped = yaml.safe_dump(options.shipped("precision", "fp16"), sort_keys=False)
    (folder / "fp16.yaml").write_text(shipped.replace("compute: fp16", "compute: fp32"))
    monkeypatch.chdir(tmp_path)
    words = ["--config-dir", "conf"] if named else []
    assert main(["--cfg", "job", "--package", "precision", *words]) == 0
    shown = capsys.readouterr()
    assert "compute: fp32" in shown.out and ("options of ./conf come before" in shown.err) is not named
    [cell] = config.load(["model=tiny-gpt2", *words]).cells
    assert cell.precision_options["compute"] == "fp32"
    assert main(["--cfg", "job", "--config-dir", "conf", "--config-name", "x"]) == 2
    assert "--config-name: beside --cfg" in capsys.readouterr().err


def test_hydras_own_view_of_a_search_and_of_a_short_word(capsys):
    assert main(["best", "--cfg", "job", "executor=dask", "psnr_db>=40", "minimise=package_mb", "chunks=3"]) == 0
    said = capsys.readouterr().out
    assert "name: dask" in said and "chunks: 3" in said
