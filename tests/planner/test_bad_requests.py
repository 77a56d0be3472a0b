"""Requests that nobody can mean: each is a sentence and exit code 2, never a traceback, a wait or an allocation."""

import itertools

import pytest

from ane_sweep.__main__ import main
from ane_sweep.bridge import key
from ane_sweep.errors import ConfigError
from ane_sweep.planner import config, matrix, schema

TINY = ["model=tiny-gpt2", "weights=random"]
TYPOS = [
    (["precision=8"], "precision=8: unknown (did you mean 'p8'?); choices: p8, "),
    (["model=2"], "model=2: unknown"),
    (["+sweep=3"], "sweep=3: unknown"),
    (["sweep=quick"], "so one is added: +sweep=quick"),
    (["-m", "seed=range(1,10,0)"], "a step other than 0"),
    (["-m", "seed=range(1,inf)"], "of finite numbers"),
    (["-m", "seed=range(5,1)"], "no values"),
    (["-m", "seed=1,sort(range(1,10))"], "cannot stand inside another one"),
    (["-m", "seed=1,2", "seed=3,4"], "seed: several values, and that twice"),
    (["effects=[[1]]"], "effects=[[1]]: expected a list of text"),
    (["chips=[{a: 1}]"], "expected a list of text"),
    (["copies_sizes=[half]"], "expected a list of numbers"),
    (["precision=p4", "precision.weights.kind=[1]"], "kind=[1]: unknown; choices: linear"),
    (["precision=p4", "precision.weights.kind={a: 1}"], "kind={'a': 1}: unknown; choices: linear"),
    (["precision=sparse50", "precision.weights.sparsity='1:" + "9" * 5000 + "'"], 'or "n:m" with n under m'),
    (["seed=" + "9" * 5000], "seed="),
    (["seed=" + "9" * 30], "at most 64 bits"),
    (["effects=" + "[" * 500 + "]" * 500], "nested too deeply"),
    (["weights=" + "x" * 200_000], "write it in a file of options"),
    (["limits.convert.timeout_s=${limits.convert.timeout_s}"], "an interpolation ${...}"),
    (["model@pkg=gpt2"], "leave @pkg out"),
    (["memory_gib=1e300"], "memory_gib=1e+300: must be 65,536 or less; that is 64 TiB"),
    (["latency.repeats=1000000"], "latency.repeats=1000000: must be 1,000 or less; each loads the program again"),
    (["chunks=100000"], "chunks=100000: must be 1,000 or less"),
    (["chips=[" + ",".join(["m4"] * 20_000) + "]"], "are a long word; write it in a file"),
    (["chips=[" + ",".join(["m4"] * 200) + "]"], "must be 100 values or less; each is a prediction"),
    (["-m", "model=tiny-gpt2,tiny-bert", "model.arch.n_layer=1"], "model.arch.n_layer: model=tiny-bert has no such key"),
    (["-m", "model=tiny-gpt2,tiny-bert", "model.arch.n_layer=1,2"], "model.arch.n_layer: model=tiny-bert has no such key"),
    (["-m", "precision=p4,fp16", "precision.weights.bits=2,4"], "precision.weights.bits: precision=fp16 has no such key"),
    (["model=tiny-gpt2", "model.path=x"], "model.path: belongs to model=module, package, onnx and exported"),
    (["model=package", "model.path=x.mlpackage", "model.kwargs={a: 1}"], "model.kwargs: belongs to model=module;"),
    (["model.arch_keys.layers=n_layers"], "model.arch_keys.layers=n_layers: model.arch has no such key"),
    (["precision=p4", "precision.weights.bits=5"], "4, 6, 8; Core ML's tables have indices of these widths alone"),
    (["precision=p4", "precision.weights.bits=5"], "(precision=p4: it stands in precision/p4.yaml, or in a word precision.weights.*"),
    (["~model.arch.n_layer"], "model.arch has no such key"),
    (["++model.package={a: 1}"], "expected the texts module and folder"),
    (["-m", "model.size=small,large"], "model.size: a name for people that changes nothing in the work"),
    (["-m", "precision.name=a,b"], "precision.name: a name for people"),
    (["-m", "hydra.sweeper.params={chunks:'1,2'}"], "hydra.sweeper.params: Hydra only composes here"),
    (["hydra.sweep.dir=/tmp/x"], "out=PATH says where"),
    (["hydra.sweeper.n=1"], "keeps one"),
    (["-m", "hydra/launcher=basic,joblib"], "lanes=N"),
    (["hydra.mode=MULTIRUN"], "-m runs a matrix"),
    (["hydra.verbose=true"], "hydra.verbose: Hydra only composes here"),
    (["+sweep=quick,nosuch"], "sweep=nosuch: unknown"),
    (["+sweep=quick,nightly"], "cannot be one sweep: they set budget_minutes"),
    (["-m", "max_cells=1,2"], "no axis"),
    (["max_cells=many"], "max_cells='many': expected a whole number"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), TYPOS, ids=lambda value: value[-1][:40] if isinstance(value, list) else "")
def test_a_typo_is_a_sentence(words, said, tmp_path, capsys):
    model = [] if any(word.lstrip("+~").startswith(("model=", "model@")) for word in words) else TINY[:1]
    assert main(["plan", *model, TINY[1], *words, f"out={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error and len(error) < 3000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["++model.arch.vocab_size=x"], "model=tiny-gpt2: arch.vocab_size='x': expected a whole number"),
        (["++model.arch.n_head=true"], "arch.n_head=True: expected a whole number"),
        (["++model.arch.n_head=0"], "arch.n_head=0: must be 1 or more"),
        (["++model.arch.n_head=3"], "arch.n_head=3: does not divide n_embd=64"),
        (["++model.arch.vocab_size=100000000000"], "nothing here is larger than 16,777,216"),
        (["++model.arch.layer_norm_epsilon=[1]"], "expected a number"),
        (["++model.arch.activation_function=glue"], "unknown (did you mean 'gelu'?)"),
        (["++model.arch.anything={1: a, b: 2}"], "expected keys of text"),
    ],
)
def test_an_architecture_is_looked_at_before_transformers_sees_it(words, said, tmp_path, capsys):
    assert main(["plan", *TINY, *words, f"out={tmp_path}"]) == 2
    assert said in capsys.readouterr().err


def test_every_number_has_an_upper_bound_with_its_reason():
    keys = {**schema.KEYS, **{f"{g}.{k}": v for g, keys in schema.GROUP_KEYS.items() for k, v in keys.items()}}
    free = {
        name for name, entry in keys.items()
        if {int, float} & set(entry.types) and not entry.choices and (entry.most is None or not entry.why)
    }  # fmt: skip
    assert free == set()


def test_a_matrix_too_large_is_refused_before_it_is_listed():
    for words, count in (
        (["seed=range(0,1000000)"], "1,000,000"),
        (["latency.idle_s=shuffle(range(0,5000,0.5))", "seed=1,2"], "20,000"),
    ):
        with pytest.raises(
            ConfigError, match=f"asks for {count} cells .*, more than max_cells=10,000; give fewer values"
        ):
            config.load(["-m", *TINY, *words])
    for word in ("seed=range(0,1000000000000000)", "latency.idle_s=range(0,1e9,0.5)", "seed=shuffle(range(0,1e300))"):
        with pytest.raises(ConfigError, match="values; no matrix has more than 1,000,000 cells"):
            config.load(["-m", *TINY, word])
    with pytest.raises(
        ConfigError, match=r"seed: 200 x seq_len: 100\), more than max_cells=10,000; .* or max_cells=20000"
    ):
        config.load(["-m", *TINY, "seed=range(0,200)", "seq_len=range(1,101)"])
    with pytest.raises(ConfigError, match="more than max_cells=3"):
        config.load(["-m", *TINY, "seed=range(0,4)", "max_cells=3"])
    assert len(config.load(["-m", *TINY, "seed=range(0,4)", "max_cells=4"]).cells) == 4
    with pytest.raises(ConfigError, match=r"latency.repeats: 2,000 timings over 2 cells"):
        config.load(["-m", *TINY, "seed=1,2", "latency.repeats=1000", "max_cells=2"])


def test_values_are_checked_once_and_not_once_a_cell(monkeypatch):
    """What keeps planning linear: ten times the cells are no more checks than the values that they are made of."""
    calls = itertools.count()
    original = key.Key.problem
    monkeypatch.setattr(key.Key, "problem", lambda *args: (next(calls), original(*args))[1])

    def checks(samples: int) -> int:
        before = next(calls)
        words = ["seed=range(0,10)", "variant=original,split_einsum", f"latency.samples=range(1,{samples + 1})"]
        assert len(config.load(["-m", *TINY, *words]).cells) == 20 * samples
        return next(calls) - before

    assert checks(100) - checks(10) == 90


def test_several_kept_matrices_are_one_sweep_of_their_cells():
    request = config.load(["+sweep=quick,crash_test"])
    assert len(request.cells) == 8 + 6
    assert {"model", "fault", "chunks", "latency.samples", "limits.convert.timeout_s"} <= set(request.axes)
    assert {cell.chunks for cell in config.load(["-m", "+sweep=quick,quick", "chunks=3"]).cells} == {3}
    names = [cell.label(request.axes) for cell in request.cells]
    assert len(set(names)) == len(names), "the axes tell any two cells apart"


def test_values_of_every_kind_reach_the_cells():
    request = config.load(["-m", *TINY, "copies=2", "copies_sizes=null,[1],[0.5,1]", "weights='a b','it\\'s'"])
    assert [(cell.copies_sizes, cell.weights) for cell in request.cells] == list(
        itertools.product((None, [1], [0.5, 1]), ("a b", "it's"))
    )
    assert request.axes == ["copies_sizes", "weights"]
    request = config.load(["-m", *TINY, "+model.arch.note=x,y"])
    assert [cell.model_options["arch"]["note"] for cell in request.cells] == ["x", "y"]


def test_the_product_says_all_that_is_wrong_with_it():
    with pytest.raises(ConfigError) as caught:
        config.load(["-m", *TINY, "variant=foo,original", "seed=-1,0", "precision=fp16,nosuch", "model.size=a,b"])
    text = "\n".join(caught.value.problems)
    assert len(caught.value.problems) == 4, text
    assert all(said in text for said in ("variant=foo", "seed=-1", "precision=nosuch", "model.size"))
    assert matrix.SETTINGS


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["limits.convert.timeout_s=${seq_len}"], [(10, 0), (20, 0)]),
        (["limits.convert.timeout_s=${seq_len}", "seed=${limits.convert.timeout_s}"], [(10, 10), (20, 20)]),
        (["limits.convert.timeout_s=${oc.select:seq_len}"], [(10, 0), (20, 0)]),
        (["limits.convert.timeout_s=${limits.chunk.timeout_s}", "limits.chunk.timeout_s=7"], [(7, 0), (7, 0)]),
    ],
)
def test_interpolations_follow_the_axes_however_they_are_written(words, expected):
    request = config.load(["-m", *TINY, *words, "seq_len=10,20"])
    assert [(cell.limits["convert"]["timeout_s"], cell.seed) for cell in request.cells] == expected
    assert request.axes == ["seq_len"]


def test_a_wrong_key_beside_a_given_model_is_told_alone():
    """Which keys there are is decided by the option, so each word is looked at beside it."""
    with pytest.raises(ConfigError) as caught:
        config.load(["model=module", "model.path=nets.py:Net", "model.input={x: [1]}"])
    (said,) = caught.value.problems
    assert said.startswith("model.input: nothing reads this key")
