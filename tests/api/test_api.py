"""The functions of `ane_sweep`: what they load, how a matrix is asked for, what comes back, and what a mistake says."""

import re
import subprocess
import sys
from pathlib import Path

import constructed
import nights
import numpy as np
import pandas
import pytest
from placement.by_hand import conv_chain

import ane_sweep
from ane_sweep import __main__, engine, errors
from ane_sweep.api import asked, inline, sweeps
from ane_sweep.bridge import metrics
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.plan import Outcome
from ane_sweep.bridge.record import StageStatus, write_records

TINY = "model=tiny-gpt2 weights=random"
HEAVY = ("torch", "hydra", "mlflow", "pandas", "numpy", "coremltools", "transformers", "rich")


def test_importing_it_loads_nothing_heavy():
    code = f"import sys, ane_sweep; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"chunks": [1, 2]}, "chunks=1,2"),
        ({"chunks": range(1, 3)}, "chunks=1,2"),
        ({"chunks": np.array([1, 2])}, "chunks=1,2"),
        ({"variant": ["original", "split_einsum"]}, "variant='original','split_einsum'"),
        ({"chips": ["m1", "m4"]}, "chips=['m1','m4']"),
        ({"chips": []}, "chips=[]"),
        ({"chips": "m4"}, "chips='m4'"),
        ({"latency": {"samples": 50}}, "latency.samples=50"),
        ({"budget_minutes": None}, "budget_minutes=null"),
        ({"tracking": {"enabled": False}}, "tracking.enabled=false"),
        ({"sweep": "quick"}, "+sweep='quick'"),
        ({"model.texts.count": [1, 2]}, "model.texts.count=1,2"),
    ],
)
def test_a_keyword_is_a_word_of_the_command_line(given, word):
    ((key, value),) = given.items()
    assert list(asked.as_word(key, value)) == [word]


def test_words_and_keywords_ask_for_the_same_cells(tmp_path):
    words = ane_sweep.plan(f"-m {TINY} variant=original,split_einsum", "chunks=1,2", f"out='{tmp_path}'")
    keywords = ane_sweep.plan(TINY, variant=("original", "split_einsum"), chunks=[1, 2], out=tmp_path)
    assert [cell.key for cell in words.cells] == [cell.key for cell in keywords.cells] and len(words.cells) == 4
    assert words.plan.key == keywords.plan.key and not words.refused


def test_a_plan_is_what_the_verb_prints(tmp_path, capsys):
    assert __main__.main(["plan", *TINY.split(), f"out={tmp_path}"]) == 0
    assert capsys.readouterr().out == f"{ane_sweep.plan(TINY, out=tmp_path)}\n"


def test_a_hydra_of_the_notebooks_own_stays_as_it_was(tmp_path):
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    GlobalHydra.instance().clear()
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        theirs = GlobalHydra.instance().hydra
        ane_sweep.plan(TINY, out=tmp_path)
        assert GlobalHydra.instance().hydra is theirs


def lines(capsys, *args):
    assert __main__.main(list(args)) == 2
    return [line.strip().removeprefix("error: ") for line in capsys.readouterr().err.splitlines()]


@pytest.mark.parametrize(
    "words",
    [("model=nosuch",), ("chunk=1",), (*TINY.split(), "chunks=0"), (*TINY.split(), "latency.samples=x"), ("model=[",)],
)
def test_a_mistake_raises_the_sentences_that_the_terminal_prints(words, tmp_path, capsys):
    printed = lines(capsys, "plan", *words, f"out={tmp_path}")
    with pytest.raises(errors.ConfigError) as caught:
        ane_sweep.plan(*words, out=tmp_path)
    assert caught.value.problems == [line for line in printed if line not in ("error:", "nothing was run")]


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda out: ane_sweep.sweep(TINY, seq_len=[4096], out=out), errors.ConfigError, "beyond the 512 positions"),
        (lambda out: ane_sweep.sweep("+sweep=nightly", out=out), errors.ConfigError, "a night is run by the command"),
        (lambda out: ane_sweep.plan(chunks=[]), errors.ConfigError, "chunks=[]: no values"),
        (lambda out: ane_sweep.plan("model='x"), errors.ConfigError, "no closing quotation"),
        (lambda out: ane_sweep.plan({"model": "gpt2"}), errors.ConfigError, "axes as keyword arguments"),
        (lambda out: ane_sweep.plan("--help"), errors.ConfigError, "help(ane_sweep)"),
        (lambda out: ane_sweep.load("nosuch", out), errors.RunNotFound, "no sweep nosuch"),
        (lambda out: ane_sweep.lint(out / "x.mlpackage"), errors.PackageError, "no such model"),
        (lambda out: ane_sweep.lint(out, chip="m77"), errors.ConfigError, "chip=m77: unknown; known: "),
        (
            lambda out: ane_sweep.lint(out, compute_units="cpu_and_nee"),
            errors.ConfigError,
            "did you mean 'cpu_and_ne'?",
        ),
        (lambda out: ane_sweep.lint(out, min_ane_share=2), errors.ConfigError, "expected a number from 0 to 1"),
        (lambda out: ane_sweep.predict(out, {}, device="tpu"), errors.ConfigError, "choices: cpu, cuda"),
        (lambda out: ane_sweep.predict(out / "x.mlpackage", {}), errors.PackageError, "no such model"),
    ],
)
def test_a_users_mistake_is_a_type_of_ours(call, kind, said, tmp_path):
    with pytest.raises(kind) as caught:
        call(tmp_path)
    assert said in str(caught.value) and isinstance(caught.value, errors.AneSweepError)


@pytest.fixture
def folder(tmp_path):
    """A finished run of constructed records, in an outputs folder."""
    place = tmp_path / "runs" / constructed.STAMP
    write_records(place, constructed.records(12, bad=False))
    run = '{"schema": 1, "plan_key": "p", "command": [], "started": "2026-01-02T03:04:05+00:00", "finished": "2026-01-02T04:00:00+00:00"}'
    (place / "run.json").write_text(run)
    return place


def test_a_sweep_is_loaded_by_last_by_its_name_and_by_its_folder(folder, tmp_path):
    by_folder = ane_sweep.load(folder)
    assert (
        by_folder.records == ane_sweep.load("last", tmp_path).records == ane_sweep.load(folder.name, tmp_path).records
    )
    assert by_folder.path == folder and by_folder.ok
    assert f"records: {folder}" in repr(by_folder) and "gpt2" in repr(by_folder)


def test_a_frame_has_a_row_a_cell_and_never_mixes_kinds(folder):
    found = ane_sweep.load(folder)
    found.records[0].metrics.append(Metric("latency_ms", 0.5, "ms", "estimated", chip="m4"))
    frame = found.frame()
    assert list(frame["cell_key"]) == [record.cell_key for record in found.records]
    assert frame.index.is_unique and frame.index[0].startswith("gpt2 ")
    varying = [key for key in ("variant", "precision", "chunks") if len({r.cell[key] for r in found.records}) > 1]
    request = 1 + len(varying)
    assert list(frame.columns[:request]) == ["model", *varying]
    answer = ["latency_ms", "latency_kind", "latency_low_ms", "latency_high_ms", "chip", "ane_share", "ane_cost_share"]
    assert list(frame.columns[request : request + 10]) == [*answer, "psnr_db", "package_mb", "status"]
    first = frame.iloc[0]
    assert (first["latency_kind"], first["chip"]) == ("measured", "constructed"), "Core ML's time answers"
    assert first["latency_low_ms"] < first["latency_ms"] == found.records[0].value("latency_median_ms")
    assert first["package_mb"] == found.records[0].value("package_bytes") / 1e6
    request += 10
    assert list(frame.columns[-2:]) == ["reason", "cell_key"], "hashes last"
    assert "seq_len" not in frame.columns, "which all cells have in common"
    medians = [record.value("latency_median_ms") for record in found.records]
    assert list(frame["measured.latency_median_ms"]) == medians
    assert frame["estimated.m4.latency_ms"].dropna().tolist() == [0.5]
    shown = frame.columns[request:-2]
    assert {column.split(".")[0] for column in shown} <= {"measured", "planned", "estimated", "predicted", "published"}


def test_a_report_stands_in_a_frame_that_reaches_nothing_else(folder, tmp_path):
    page = ane_sweep.load(folder).report(height=300)
    shown = page._repr_html_()
    assert shown.startswith("<iframe ") and 'sandbox="allow-scripts allow-popups"' in shown and "height:300px" in shown
    assert shown.count("<") == 2, "all of the page is escaped in its srcdoc"
    assert page.save(tmp_path / "x.html").read_text(encoding="utf-8") == page.html and constructed.STAMP in page.html


def test_lint_is_the_verbs_verdict(tmp_path, capsys):
    package = conv_chain(tmp_path / "good.mlpackage", 8)
    found = ane_sweep.lint(package)
    assert __main__.main(["lint", str(package)]) == 0 and capsys.readouterr().out == f"{found}\n"
    assert found.ok and found.ane_share == 1 and found.summary.ops.ane == 16 == len(found.ops)
    assert list(found.frame()["op_type"]) == ["conv", "relu"] * 8
    small = ane_sweep.lint(conv_chain(tmp_path / "small.mlpackage", 1))
    assert not small.ok and small.summary.reasons and "NOT enough on the ANE" in str(small)


def test_predict_takes_and_gives_arrays(tmp_path):
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder as mb

    x, goal = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), ct.target.iOS16
    package = tmp_path / "one.mlpackage"

    @mb.program(input_specs=[mb.TensorSpec(x.shape)], opset_version=goal)
    def program(x):
        return mb.exp(x=x, name="y")

    ct.convert(program, minimum_deployment_target=goal, compute_precision=ct.precision.FLOAT16).save(str(package))
    alone, named = ane_sweep.predict(package, x), ane_sweep.predict(package, {"x": x})
    np.testing.assert_allclose(alone["y"], np.exp(x), rtol=2**-9)  # of x and of y, half an ulp of fp16 each
    np.testing.assert_array_equal(alone["y"], named["y"])
    with pytest.raises(errors.PackageError, match="z"):
        ane_sweep.predict(package, {"z": x})


def test_outside_jupyter_a_sweep_shows_nothing_and_keeps_what_is_said(capsys):
    reader = inline.Reader()
    assert inline.shower() is None and type(reader.watch(None)) is engine.QuietView
    reader.tell("doubt: not logged")
    reader.watch(None).say("waiting for a quiet machine")
    assert reader.said == ["doubt: not logged", "waiting for a quiet machine"]
    assert capsys.readouterr() == ("", "")
    found = sweeps.Sweep(path="p", records=constructed.records(1), said=reader.said)
    assert "doubt: not logged" in repr(found) and "waiting" not in repr(found)


class Shown:
    def __init__(self):
        self.drawn = []

    def __call__(self, data, **_):
        self.drawn.append(data)
        return self

    def update(self, data, **_):
        self.drawn.append(data)


def test_the_bar_counts_names_what_went_wrong_and_stands_still_while_timing():
    from played import plan as made

    plan, shown = made(), Shown()
    tasks = list(plan.tasks.values())
    bar = inline.Bar(print, plan, shown)
    for one in tasks[:-1]:
        bar.begin(one)
        bar.end(one, Outcome(StageStatus.OK, None))
    bar.freeze()
    drawn = len(shown.drawn)
    bar.end(tasks[-1], Outcome(StageStatus.CRASHED, "SIGSEGV in <native>\nmore"))
    assert len(shown.drawn) == drawn, "an end draws nothing: the next task may already be timed"
    bar.close()
    last = shown.drawn[-1]
    assert f"{len(tasks)}/{len(tasks)} done" in last["text/plain"] and f'max="{len(tasks)}"' in last["text/html"]
    assert f"{tasks[-1].label}: crashed, SIGSEGV in &lt;native&gt;</div>" in last["text/html"]


def test_what_ends_a_run_lets_go_of_it(monkeypatch, tmp_path):
    class Run:
        released = 0

        def release(self):
            self.released += 1

    run = Run()
    with pytest.raises(KeyboardInterrupt), engine.release_on_error(run):
        raise KeyboardInterrupt
    assert run.released == 1


def test_pandas_is_asked_for_where_it_is_used():
    assert isinstance(sweeps.Sweep("p", []).frame(), pandas.DataFrame)


def test_a_name_that_no_figure_has_raises_with_the_known_ones(folder):
    record = ane_sweep.load(folder).records[0]
    with pytest.raises(errors.ConfigError, match=r"nosuch: no figure has that name; known: .*psnr_db"):
        record.value("nosuch")
    with pytest.raises(errors.ConfigError, match=r"did you mean 'latency_median_ms'"):
        record.value("latency_medain")
    assert record.value("perplexity") is None and record.value("latency_1x3x24x24_median_ms") is None
    record.metrics.append(Metric("of_a_plugin", 3.0))
    assert record.value("of_a_plugin") == 3.0


def test_every_name_that_the_package_writes_or_asks_for_is_known():
    """So no cell of a sweep can raise where a figure is only missing."""
    written = re.compile(r'(?:Metric|\.value|planned|predicted)\(\s*f?"([^"]+)"')
    names = {
        re.sub(r"\{[^}]*\}", "ane", name.replace("latency{end}", "latency"))  # as in ops_{unit}
        for path in Path(ane_sweep.__file__).parent.rglob("*.py")
        for name in written.findall(path.read_text(encoding="utf-8"))
        if not name.startswith("{")
        and path.parent.name
        not in ("mil", "reference", "placement", "models", "coreml_anywhere", "planner", "rules", "hazards")
    }
    unknown = {name for name in names if not metrics.is_recorded(name)}
    assert len(names) > 40 and not unknown


def test_a_frame_answers_with_the_estimate_where_core_ml_did_not_run(folder):
    found = ane_sweep.load(folder)
    for record in found.records:
        record.metrics = [metric for metric in record.metrics if metric.name != "latency_median_ms"]
    frame = found.frame()
    assert set(frame["latency_kind"].dropna()) == {"estimated"} and set(frame["chip"].dropna()) == {"m1"}
    known = [(record.value("latency_ms", "estimated", "m1")) for record in found.records]
    assert frame["latency_ms"].dropna().tolist() == [ms for ms in known if ms is not None]


def test_a_sweep_shows_itself_as_its_table_and_answer_in_100_columns(folder):
    found = ane_sweep.load(folder)
    assert repr(found).startswith(f"sweep {folder.name}: ") and "\nShip gpt2 " in repr(found)
    assert (
        max(len(line) for line in repr(found).splitlines() if "Its package" not in line and "records:" not in line)
        <= 100
    )


def test_jupyter_shows_a_sweep_as_a_table(folder):
    found = ane_sweep.load(folder)
    found.records[0].cell["model"] = "<b>gpt2"
    shown = found._repr_html_()
    assert shown.count("<tr>") == 1 + len(found.records) and "<th>PSNR dB</th>" in shown
    assert "&lt;b&gt;gpt2" in shown and "<b>gpt2" not in shown
    assert shown.startswith("<div><b>") and shown.index(" measured (Core ML") < shown.index("<table>"), (
        "the answer is above"
    )
    assert "<table>" in sweeps.Sweep("p", [])._repr_html_()


def test_two_runs_are_compared_in_python_as_by_the_verb(tmp_path, capsys):
    nights.write_run(tmp_path, "a", [nights.cell()])
    nights.write_run(tmp_path, "b", [nights.cell(psnr=50.0)])
    before, after = ane_sweep.load("a", tmp_path), ane_sweep.load("b", tmp_path)
    found = after.compare(before)
    assert __main__.main(["compare", str(before.path), str(after.path), f"out={tmp_path}"]) == 1
    assert capsys.readouterr().out == f"{found}" == found._repr_markdown_() and found.regressed
    assert [change.bucket for change in found.found.changes] == ["less accurate"] and "less accurate" in f"{found}"
    assert after.compare("a").found.changes == found.found.changes and not before.compare(after).regressed
    with pytest.raises(errors.ConfigError, match="compared with itself"):
        after.compare("b")


def test_keywords_are_completed_in_ipython():
    code = (
        "import sys, types; sys.modules['IPython'] = types.ModuleType('IPython'); import ane_sweep, inspect; "
        "from ane_sweep.bridge.cell import AXES; "
        "print([set(AXES) <= set(inspect.signature(f).parameters) for f in (ane_sweep.plan, ane_sweep.sweep, ane_sweep.best)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[True, True, True]\n", done.stderr


@pytest.mark.slow
def test_the_best_cell_is_found_and_its_package_is_given(tmp_path):
    quick = {"tracking": {"enabled": False}, "runtime": "reference", "out": tmp_path / "out"}
    found = ane_sweep.best(TINY, "psnr_db>=1", precision=["fp16", "int8_channel"], minimise="package_mb", **quick)
    (best,) = found.best
    assert best.cell["precision"] == "int8_channel" and len(found.records) == 2
    assert "smallest package_mb with psnr_db>=1" in found.text and repr(found) == found.text
    (package,) = found.get(tmp_path / "given", precision="int8_channel")
    assert package.is_dir() and (tmp_path / "given" / "README.md").is_file()
    with pytest.raises(errors.ConfigError, match="2 cells; which one"):
        ane_sweep.get("last", tmp_path / "none", out=tmp_path / "out")
    with pytest.raises(errors.ConfigError, match="nosuch: no figure"):
        ane_sweep.best(TINY, "nosuch>=1", **quick)
