"""The parts of the upstream run that need no coremltools: exclusions, verdicts, the figure, tolerances, suites."""

import json
import types
from pathlib import Path

import pytest

from ane_sweep.mil.element_types import DTYPE_NUMBERS
from tests.proof.upstream import children, exclusions, report, suites, tighten, verdict
from tests.proof.upstream.exclusions import Exclusion
from tests.proof.upstream.plugin import REACHED, Settings

RULE = "undefined"


def item(outcome="passed", node="ops/test_a.py::TestA::test_one[x=1]", models=("mlProgram",), **more):
    return {"node": node, "outcome": outcome, "models": list(models), "predicted": True, **more}


def test_every_exclusion_has_a_rule_and_a_cause_and_names_a_test_that_exists():
    root = suites.folder()
    for exclusion in exclusions.read():
        file, _, rest = exclusion.node.partition("::")
        *owner, function = rest.partition("[")[0].split("::")
        text = (root / file).read_text(encoding="utf-8")
        assert f"def {function}(" in text or owner[0] in text, (
            exclusion.node
        )  # some classes are imported from elsewhere
        assert len(exclusion.cause) > 20


@pytest.mark.parametrize("missing", ["rule", "cause", "node"])
def test_an_exclusion_without_its_reasons_is_refused(tmp_path, missing):
    fields = {"node": "a.py::f", "rule": "r", "cause": "c"} | {missing: ""}
    lines = [f'{name} = "{value}"' for name, value in fields.items()]
    file = tmp_path / "e.toml"
    file.write_text("\n".join(['[rules]\nr = "why"', "[[exclude]]", *lines]))
    with pytest.raises(ValueError, match="needs a node id, a cause, and a rule"):
        exclusions.read(file)


def test_an_exclusion_covers_a_function_or_items_by_pattern():
    assert Exclusion("a.py::f", RULE, "c").covers("a.py::f[x=1]")
    assert not Exclusion("a.py::f", RULE, "c").covers("a.py::ff[x=1]")
    one = Exclusion("a.py::f[shape=[1]-*]", RULE, "c")
    assert one.covers("a.py::f[shape=[1]-mode=up]") and not one.covers("a.py::f[shape=1-mode=up]")


@pytest.mark.parametrize(
    ("found", "control", "cause"),
    [
        ({"outcome": "crashed"}, None, "crashed"),
        ({"outcome": "failed", "error": "RuntimeError", "text": "the reference runtime lacks op 3 `x`"}, None, "lacks an op"),
        ({"outcome": "failed", "error": "AssertionError", "text": "Not equal to tolerance rtol=1"}, None, "numbers differ"),
        ({"outcome": "failed", "error": "RuntimeError", "text": "m: holds a neuralNetwork, and only ML Programs are read here",
              "models": ["neuralNetwork"]}, None, "not an ML Program"),
        ({"outcome": "failed", "error": "ValueError", "text": "no"}, {"outcome": "failed", "text": "no"}, "fails without the drop-in"),
        ({"outcome": "failed", "error": "ValueError", "text": "no"}, {"outcome": "skipped", "text": REACHED}, "other"),
        ({"outcome": "crashed"}, {"outcome": "failed", "text": "no"}, "crashed"),
    ],
)  # fmt: skip
def test_whose_fault(found, control, cause):
    assert verdict.settle(item(**found), control, REACHED) == cause


def test_the_figure_counts_what_builds_a_program_and_a_crash_and_nothing_else(monkeypatch):
    monkeypatch.setattr(exclusions, "read", lambda: ())
    tally = report.Tally()
    tally.add(item(), None)
    tally.add(item("passed", models=[]), None)
    tally.add(item("skipped"), None)
    tally.add(item("failed"), "fails without the drop-in")
    tally.add(item("failed"), "numbers differ")
    tally.add(item("crashed", models=[]), "crashed")
    assert sum(tally.counted.values()) == 3 and tally.rate == pytest.approx(1 / 3)
    assert not tally.is_good
    assert "1 of 3 items passed: 33.33 %" in report.text(tally)


def test_an_exclusion_takes_a_failure_out_but_not_a_crash_nor_a_missing_op_and_heals_loudly(monkeypatch):
    monkeypatch.setattr(exclusions, "read", lambda: (Exclusion("ops/test_a.py::TestA::test_one", RULE, "the cause"),))
    tally = report.Tally()
    tally.add(item("failed"), "numbers differ")
    assert not tally.counted and tally.is_good and len(tally.excluded) == 1
    tally.add(item("failed"), "lacks an op")
    tally.add(item("crashed"), "crashed")
    assert sum(tally.counted.values()) == 2 and tally.rate == 0
    healed = report.Tally()
    healed.add(item(), None)
    assert not healed.is_good and "take these out" in report.text(healed)


def test_tolerances_are_a_fiftieth_where_the_helper_widens_them_and_nowhere_else():
    module = types.ModuleType("helper")
    tighten.tolerances(module)
    assert module.max(1e-4 * 100.0, 5e-1) == pytest.approx(1e-2)
    assert module.max(1e-2 * 100.0, 5e-1) == pytest.approx(1 / 50)
    assert module.max(1e-5 * 100.0, 5e-2) == pytest.approx(1e-3)
    assert module.max(3, 7) == 7 and module.max([1, 2]) == 2 and module.max([], default=4) == 4


def test_ml_programs_by_default_on_a_copy_and_named_backends_are_left_alone():
    module = types.ModuleType("helper")
    module.assert_model_is_valid = lambda program, inputs, backend=("neuralnetwork", "fp32"): (program, backend)
    tighten.ml_programs_by_default(module, "fp16")
    program = ["op"]
    given, backend = module.assert_model_is_valid(program, {})
    assert backend == ("mlprogram", "fp16") and given == program and given is not program
    given, backend = module.assert_model_is_valid(program, {}, backend=("neuralnetwork", "fp32"))
    assert backend == ("neuralnetwork", "fp32") and given is program


def test_suites_are_found_and_unknown_words_refused():
    everything = suites.resolve([])
    assert set(everything) == set(suites.SUITES) and all(everything.values())
    assert not set(everything["torch_api"]) & set(everything["torch_ops"])
    assert [file.name for file in suites.resolve(["iOS17/test_linear"])["mil_ops"]] == ["test_linear.py"]
    with pytest.raises(SystemExit, match="no suite and no test file"):
        suites.resolve(["nothing_like_this"])


def test_a_suite_without_files_is_empty(tmp_path, monkeypatch):
    """Another coremltools may lack a suite's folder."""
    monkeypatch.setattr(children.subprocess, "run", lambda *_, **__: pytest.fail("there is nothing to run"))
    assert children.run([], Settings("", str(tmp_path)), []) == children.Ended({}, [])


def test_a_crash_costs_one_item_and_the_others_go_on(tmp_path, monkeypatch):
    """A child that dies: the item it was in is noted as crashed, and the next child is told to leave it out."""
    calls = []

    def fake(command, env, **options):
        settings = Settings(**json.loads(Path(env["ANE_SWEEP_UPSTREAM"]).read_text()))
        calls.append(settings.done)
        lines = [
            '{"start": "a.py::one"}',
            '{"node": "a.py::one", "outcome": "passed", "models": []}',
            '{"start": "a.py::two"}',
        ]
        if settings.done:
            lines = ['{"start": "a.py::three"}', '{"node": "a.py::three", "outcome": "passed", "models": []}']
        with open(settings.results, "w") as file:
            file.write("\n".join(lines))
        return types.SimpleNamespace(returncode=0 if settings.done else -11, stdout="", stderr="Segmentation fault")

    monkeypatch.setattr(children.subprocess, "run", fake)
    ended = children.run([tmp_path / "a.py"], Settings("", str(tmp_path)), [])
    assert {node: found["outcome"] for node, found in ended.items.items()} == {
        "a.py::one": "passed",
        "a.py::two": "crashed",
        "a.py::three": "passed",
    }
    assert calls == [[], ["a.py::one", "a.py::two"]]


@pytest.mark.parametrize(
    ("taken", "weight", "made", "reader", "expected"),
    [
        ("fp32", "fp32", "fp32", "linear", False),
        ("fp16", "fp32", "fp32", "linear", True),
        ("fp32", "fp16", "fp32", "linear", True),
        ("fp32", "fp16", "fp32", "constexpr_affine_dequantize", False),
        ("fp32", "fp32", "fp16", "linear", True),
    ],
)
def test_a_program_is_judged_as_fp16_where_it_computes_with_fp16(taken, weight, made, reader, expected):
    from ane_sweep.mil.proto import Model_pb2

    def typed(value, dtype):
        value.type.tensorType.dataType = DTYPE_NUMBERS[dtype]

    spec = Model_pb2.Model()
    function = spec.mlProgram.functions["main"]
    typed(function.inputs.add(name="x"), taken)
    block = function.block_specializations["CoreML7"]
    typed(block.operations.add(type="const").outputs.add(name="w"), weight)
    op = block.operations.add(type=reader)
    op.inputs["x"].arguments.add(name="x")
    op.inputs["weight"].arguments.add(name="w")
    typed(op.outputs.add(name="y"), made)
    assert tighten.holds_fp16(spec) is expected
