"""The command line, composed and expanded: the product is plain Python, the grammar is Hydra's."""

import textwrap
from dataclasses import asdict

import pytest
import yaml

from ane_sweep.bridge import stages
from ane_sweep.bridge.rewrites import plain_values
from ane_sweep.bridge.settings import RunSettings
from ane_sweep.errors import ConfigError
from ane_sweep.planner import config, options, schema
from ane_sweep.planner.paths import conf_dir
from tests.shipped import all_shipped


def problems(*args: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config.load(list(args))
    return caught.value.problems


def labels(*args: str) -> list[str]:
    request = config.load(list(args))
    return [cell.label(request.axes) for cell in request.cells]


def test_the_users_own_line_gives_six_cells_in_order():
    assert labels("-m", "model=gpt2,gpt2-xl", "chunks=1,2,4") == [
        f"model={model} chunks={chunks}" for model in ("gpt2", "gpt2-xl") for chunks in (1, 2, 4)
    ]


def test_defaults_are_one_cell_of_minilm():
    request = config.load([])
    assert [(cell.model, cell.precision, cell.chunks) for cell in request.cells] == [("minilm", "fp16", 1)]
    assert request.axes == []


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["chunks=range(1,4)"], ["chunks=1", "chunks=2", "chunks=3"]),
        (["chunks=choice(1,2)"], ["chunks=1", "chunks=2"]),
        (["model=glob(gpt2-*)"], ["model=gpt2-large", "model=gpt2-medium", "model=gpt2-xl"]),
        (["weights=random,'/a b,c'"], ["weights=random", "weights=/a b,c"]),
        (["latency.samples=5,10"], ["latency.samples=5", "latency.samples=10"]),
        (["model.texts.count=1,2"], ["model.texts.count=1", "model.texts.count=2"]),
    ],
)
def test_the_whole_grammar_makes_axes(args, expected):
    assert labels("-m", *args) == expected


def test_group_values_keep_their_fixed_keys():
    request = config.load(["model.texts.count=4", "-m", "model=gpt2,gpt2-xl"])
    assert [cell.model_options["texts"]["count"] for cell in request.cells] == [4, 4]
    assert [cell.model_options["layers"] for cell in request.cells] == [12, 48]


def test_interpolations_follow_the_axes():
    request = config.load(["limits.convert.timeout_s=${seq_len}", "-m", "seq_len=10,20"])
    assert [cell.limits["convert"]["timeout_s"] for cell in request.cells] == [10, 20]


def test_everything_wrong_is_reported_together():
    found = problems("-m", "model=gpt2,gpt3", "chunks=0,1", "variant=foo", "chunk=2", "lanes=true")
    text = "\n".join(found)
    assert "model=gpt3: unknown (did you mean 'gpt2'?); choices: gpt2, " in text
    assert "chunks=0: must be 1 or more" in text
    assert "variant=foo: unknown; choices: original, split_einsum" in text
    assert "chunk: nothing reads this key (did you mean 'chunks'?)" in text
    assert "lanes=True: expected a whole number" in text
    assert len(found) == 5


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["model=gpt2,gpt2-xl"], "model=gpt2,gpt2-xl lists several values: add -m"),
        (["+new.key=1"], "new.key: nothing reads this key"),
        (["+precision.bits=4"], "precision.bits: nothing reads this key"),
        (["~chunks"], "chunks: has no default"),
        (["chunks=abc"], "chunks=abc: unknown; choices: a number, auto"),
        (["seq_len=1.5"], "seq_len=1.5: expected a whole number"),
        (["gate.busy=nan"], "gate.busy=nan: numbers must be finite"),
        (["-m", "latency.max_seconds=1,inf"], "latency.max_seconds=inf: numbers must be finite"),
        (["+model.arch.rope_theta=inf"], "numbers must be finite"),
        (["model.texts.count=0"], "model.texts.count=0: must be 1 or more"),
        (["model.texts.count=many"], "model.texts.count='many': expected a whole number"),
        (["+sweep={axes:3}"], "sweep.axes=3: expected a mapping"),
        (["+sweep={pairs:[3]}"], "sweep.pairs=[3]: expected a list of mappings"),
        (["+sweep={pairs:[{chunks:3}]}"], "expected lists of values"),
        (["+sweep={exclude:3}"], "sweep.exclude=3: expected a list of mappings"),
        (["target=iOS14"], "target=iOS14: unknown (did you mean 'iOS"),
        (["precision=fp7"], "precision=fp7: unknown (did you mean 'fp8'?); choices: fp8, fp4, fp16, "),
        (["compute_units=ane"], "choices: all, cpu_only, cpu_and_gpu, cpu_and_ne"),
        (["chunks=[1,2"], "The form is key=value"),
        (["+sweep=nope"], "sweep=nope: unknown; choices: calibrate, calibrate_tiny, "),
        (["-m", "seq_len=interval(1,2)"], "an interval has no list of values"),
        (["-m", "model=glob(zzz*)"], "matches none; choices: bert"),
        (["-m", "memory_gib=null,4.5"], "memory_gib: several values, but it is a setting of the whole sweep"),
        (["--config-dir", "/nope"], "--config-dir /nope: no such folder"),
    ],
)
def test_bad_input_says_what_and_what_next(args, text):
    assert text in "\n".join(problems(*args))


@pytest.fixture
def own_options(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "sweep" / "mine.yaml").write_text(
        textwrap.dedent("""
            name: mine
            axes: {model: [gpt2, gpt2-xl], chunks: [1, 2, 4]}
            pairs: [{seq_len: [64, 128], latency.samples: [5, 10]}]
            exclude: [{model: gpt2-xl, chunks: [2, 4]}, {variant: split_einsum}]
        """)
    )
    tiny = options.shipped("model", "tiny-gpt2")
    (tmp_path / "model" / "mytiny.yaml").write_text(yaml.safe_dump({**tiny, "name": "mytiny"}))
    return str(tmp_path)


def test_a_kept_matrix_has_axes_pairs_and_excludes(own_options):
    request = config.load(["--config-dir", own_options, "-m", "+sweep=mine"])
    seen = {(c.model, c.chunks, c.seq_len, c.latency["samples"]) for c in request.cells}
    assert seen == {
        (model, chunks, seq_len, samples)
        for model, chunks in [("gpt2", 1), ("gpt2", 2), ("gpt2", 4), ("gpt2-xl", 1)]
        for seq_len, samples in [(64, 5), (128, 10)]
    }
    assert request.notes == ["sweep.exclude: {'variant': 'split_einsum'} excluded nothing"]


def test_the_command_line_wins_over_a_kept_matrix(own_options):
    assert {c.chunks for c in config.load(["--config-dir", own_options, "+sweep=mine", "chunks=2"]).cells} == {2}
    assert {c.chunks for c in config.load(["--config-dir", own_options, "-m", "+sweep=mine", "chunks=3,5"]).cells} == {
        3,
        5,
    }


def test_a_users_own_model_option(own_options):
    assert labels("--config-dir", own_options, "-m", "model=mytiny,gpt2") == ["model=mytiny", "model=gpt2"]


def test_a_users_own_option_stands_before_the_shipped_one_of_its_name(tmp_path):
    (tmp_path / "model").mkdir()
    tiny = yaml.safe_dump(options.shipped("model", "tiny-gpt2"), sort_keys=False).replace(
        "name: tiny-gpt2", "name: gpt2"
    )
    (tmp_path / "model" / "gpt2.yaml").write_text(tiny)
    (tmp_path / "config.yaml").write_text("of: another program\n")
    (cell,) = config.load(["--config-dir", str(tmp_path), "model=gpt2"]).cells
    assert (cell.model, cell.size) == ("gpt2", "tiny")


def test_pairs_of_unequal_length_are_refused(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "odd.yaml").write_text("name: odd\npairs: [{chunks: [1, 2], seq_len: [8]}]\n")
    assert problems("--config-dir", str(tmp_path), "+sweep=odd") == [
        "sweep.pairs: paired axes need lists of one length: chunks has 2, seq_len has 1"
    ]


def test_every_shipped_key_is_in_the_table_and_every_name_is_its_files():
    shipped = (
        {**plain_values(), **yaml.safe_load((conf_dir() / "config.yaml").read_text())}
        | {"limits": stages.limits()}
        | asdict(RunSettings())
    )
    names = {
        name
        for name, _ in schema.leaves({k: v for k, v in shipped.items() if k not in ("defaults", "hydra")}, schema.KEYS)
    }
    assert names == set(schema.KEYS)
    for group in schema.GROUP_KEYS:
        for name, option in all_shipped(group).items():
            assert option["name"] == name


def test_a_thousand_cells_take_seconds_not_minutes():
    """A guard against composing per cell (40 ms each): counts compositions, not seconds."""
    calls = 0
    original = config.Composer.compose

    def counted(self, overrides):
        nonlocal calls
        calls += 1
        return original(self, overrides)

    config.Composer.compose = counted
    try:
        request = config.load(
            ["-m", "chunks=1,2,4,8,16", "seq_len=16,32,64,128,256", "compute_units=all,cpu_only,cpu_and_gpu,cpu_and_ne",
             "model=glob(gpt2*)", "variant=original,split_einsum", "latency.samples=5,10,20,30,40"]
        )  # fmt: skip
    finally:
        config.Composer.compose = original
    assert len(request.cells) == 4000 and calls <= 6


@pytest.mark.parametrize(
    "environment, words, uri, experiment, said",
    [
        ({}, [], None, "ane-sweep", []),
        ({"URI": "http://t:5", "NAME": "mine"}, [], "http://t:5", "mine", ["MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME"]),
        ({"URI": "http://t:5"}, ["tracking.uri=http://other:6"], "http://other:6", "ane-sweep", []),
        ({"NAME": "mine"}, ["tracking.experiment=ours"], None, "ours", []),
        ({"URI": "", "NAME": ""}, [], None, "ane-sweep", []),
        ({"URI": "http://t:5"}, ["tracking.enabled=false"], "http://t:5", "ane-sweep", []),
        ({"URI": "http://ada:s3cret@t:5"}, [], "http://ada:s3cret@t:5", "ane-sweep", ["http://***@t:5"]),
    ],
)  # fmt: skip
def test_a_key_wins_over_mlflows_variable_and_that_over_the_default(
    monkeypatch, environment, words, uri, experiment, said
):
    for name, value in environment.items():
        monkeypatch.setenv({"URI": "MLFLOW_TRACKING_URI", "NAME": "MLFLOW_EXPERIMENT_NAME"}[name], value)
    request = config.load(["model=tiny-gpt2", *words])
    found = request.settings.tracking
    assert (found.uri, found.experiment) == (uri, experiment)
    notes = [note for note in request.notes if "logged to" in note]
    assert len(notes) == len(said) and all(part in note for part, note in zip(said, notes))
    assert not any("s3cret" in note for note in request.notes)


@pytest.mark.parametrize(
    ("word", "chips"),
    [
        ("chips=m4", ["m4"]),
        ("chips='m4'", ["m4"]),
        ("chips=m1,m4", ["m1", "m4"]),
        ("chips=[M4-Max,iphone15_pro,a17_pro]", ["m4_max", "a17_pro"]),
        ("chips=iPhone 15 Pro", ["a17_pro"]),
        ("chips=mac_mini_m4_pro", ["m4_pro"]),
        ("chips=[]", []),
    ],
)
def test_one_chip_is_a_list_of_it_and_a_device_stands_for_its_chip(word, chips):
    assert config.load([word]).settings.chips == config.load(["-m", word]).settings.chips == chips


def test_an_option_file_may_name_one_chip(tmp_path):
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "mine.yaml").write_text("# @package _global_\nchips: iphone12_pro\n")
    assert config.load(["--config-dir", str(tmp_path), "+sweep=mine"]).settings.chips == ["a14"]
