"""One table of exit codes for all verbs (command.EXIT_CODES): every code that a verb's help promises, seen."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import nights
import numpy as np
import pytest
from hwx import built
from hwx.test_programs import ADD
from placement.by_hand import conv_chain

from ane_sweep import engine, tracking, verbs
from ane_sweep import words as command
from ane_sweep.__main__ import main
from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.task import TaskResult
from ane_sweep.bundles import delivery
from ane_sweep.calibration import run as calibration
from ane_sweep.calibration.figures import CalibrationRows
from ane_sweep.errors import StageError, TrackingError
from ane_sweep.fix import driver as rewriting
from ane_sweep.mil import package
from ane_sweep.planner import help
from ane_sweep.report import drift
from ane_sweep.search import goal
from ane_sweep.search import run as search_run
from ane_sweep.talk import cells, session
from ane_sweep.terminal import BAD_CONFIGURATION, EXIT_CODES, IN_DOUBT, INTERRUPTED, NOT_ALL_OK, OK
from ane_sweep.verbs import _workers, doctor
from ane_sweep.verbs import run as running
from ane_sweep.verbs.doctor.probes import Finding

TINY = ["model=tiny-gpt2", "weights=random"]


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A working folder with runs to look at, and what a test may want to be otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANE_SWEEP_OUT", str(tmp_path / "out"))
    return SimpleNamespace(path=tmp_path, patch=monkeypatch)


def runs(room, *medians: float, repeats: int = 5) -> None:
    """A run a figure, one day after the other."""
    for day, median in enumerate(medians, 1):
        stamp = f"202601{day:02}-000000"
        nights.write_run(room.path / "out", stamp, [nights.cell(nights.slower(median)[:repeats])])
        path = room.path / "out" / "runs" / stamp / "run.json"
        told = {"axes": [], "tracking": {"enabled": False, "uri": None, "experiment": "x", "ui": None}}
        started = f"2026-01-{day:02}T00:00:00+00:00"
        path.write_text(json.dumps({**json.loads(path.read_text()), **told, "started": started, "finished": started}))


def swept(room, *statuses: str) -> list[str]:
    """A sweep whose cells end so."""
    records = [nights.cell(chunks=n, status=status, reason="why") for n, status in enumerate(statuses, 1)]
    folder = room.path / "out" / "runs" / "x"
    room.patch.setattr(engine, "perform", lambda *_: (SimpleNamespace(folder=folder, stamp="x"), records, False))
    return TINY


def raising(error: Exception):
    def instead(*_, **__):
        raise error

    return instead


def model(value: float) -> SimpleNamespace:
    """What `run` and `diff` ask a package for."""
    return SimpleNamespace(
        inputs={},
        states=None,
        ops=[],
        realised={"numerics": "fp16"},
        predict=lambda *_: {"y": np.full(4, value, np.float32)},
    )


def recent(spec):
    """For iOS18."""
    spec.specificationVersion = 9
    return spec


def staged(code: int):
    """In place of workers: all that they leave, or a failure."""

    def stage(bench, name, params, inputs):
        if code:
            raise StageError("it died")
        out = bench.folder / f"{name}-{len(list(bench.folder.iterdir()))}"
        for index in range(params.get("count", 1)):
            conv_chain(out / ("model.mlpackage" if name != "chunk" else f"chunk_{index + 1:02}.mlpackage"), 1)
        (out / "outputs.npz").write_bytes(b"")
        metrics = [Metric("bits_per_weight", 4.2, "bit"), Metric("psnr_db", 50.0, "dB")]
        facts = {"chunk_bytes": [1, 1], "boundary_bytes": [1]}
        told = {"weights_compressed": 3, "weights_left": 0}
        return TaskResult(name, name, "ok", metrics=metrics, facts=facts, realised=told, seconds=1.0), out

    return stage


def exported(room) -> str:
    runs(room, 1.0)
    assert main(["export", "last", "x.zip"]) == OK
    return "x.zip"


class Talking(SimpleNamespace):
    """A session that has an answer of each kind."""

    def __init__(self, *_):
        super().__init__(ready={"tokenizer": "bytes", "load_ms": 1.0, "realised": {}}, out=None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def ask(self, **asked):
        if "prompt" in asked:
            ms = {"tokenizer": 1.0, "model": 1.0, "sampling": 1.0, "total": 3.0}
            timing = {"first_ms": ms, "steady_ms": ms, "tokens": 2, "seconds": 0.1}
            yield {"event": "prompt", "tokens": 5}
            yield {"event": "text", "sample": 0, "text": "!"}
            yield {"event": "sample", "sample": 0, "ids": [1], "text": "!", "stopped": "seq_len", "timing": timing}
            return
        yield {"event": "label", "number": 0, "label": "GOOD", "probability": 0.9, "cut": True, "tokens": 9}
        times = dict.fromkeys(("first_ms", "median_ms", "p90_ms", "total_s", "per_s", "tokenizer_median_ms"), 1.0)
        yield {"event": "timing", "count": 1, "distinct": 1, "idle_s": 2.0, "after_idle_ms": None, **times}


def arrange(room, verb: str, code: int) -> list[str]:
    """The words after a verb that must end with a code, with the world made so."""
    match verb, code:
        case ("sweep", 0):
            return swept(room, "ok")
        case ("sweep", 1):
            return swept(room, "ok", "degraded", "crashed")
        case ("sweep", 3):
            return swept(room, "ok", "degraded")
        case ("sweep", 2):
            return [*TINY, "seq_len=4096"]
        case ("plan", 0):
            return TINY
        case ("plan", 2):
            return [*TINY, "seq_len=4096"]
        case ("report" | "log" | "nightly", 0):
            runs(room, 1.0)
            room.patch.setattr(tracking, "log_sweep", lambda *_, **__: None)
            room.patch.setattr(engine, "links", lambda *_: {})
            return []
        case ("report", 1):
            runs(room, 1.0)
            room.patch.setattr(drift, "look", raising(StageError("it died")))
            return ["--drift"]
        case ("log", 1):
            runs(room, 1.0)
            room.patch.setattr(tracking, "log_sweep", raising(TrackingError("it is down")))
            return []
        case ("compare", 0 | 1):
            runs(room, 1.0, 1.0 if code == 0 else 2.0)
            return ["20260101-000000", "last"]
        case ("compare", 3):
            runs(room, 1.0, 1.0, repeats=1)
            return ["20260101-000000", "last"]
        case ("history", 0 | 1):
            runs(room, *[1.0 + n / 1000 for n in range(12)], *([1.5] * 12 if code else []))
            return []
        case ("history", 3):
            runs(room, 1.0, 1.0)
            return []
        case ("export", 0):
            runs(room, 1.0)
            return ["y.zip"]
        case ("import", 0):
            return [exported(room)]
        case ("prune", 0):
            return ["max-gb=1"]
        case ("lint", 0 | 1):
            return [str(conv_chain(room.path / "m.mlpackage", 8 if code == 0 else 1))]
        case ("lint", 3):  # an A12 has no estimate
            return [str(conv_chain(room.path / "m.mlpackage", 8)), "--chip", "a12", "--max-ms", "9", "--min-ane", "0"]
        case ("ci", 0):
            return ["write", "github"]
        case ("calibrate", 0 | 1 | 3):
            done = calibration.Calibration("m3", room.path, CalibrationRows(), None, room.path / "c.zip", code)
            room.patch.setattr(calibration, "calibrate", lambda *_: done)
            return ["run"]
        case ("hwx", 0 | 3):
            text = built.frame(ADD)
            return [str(built.program(room.path / "m.hwx", 5, text, 1 if code == 0 else 2, {}, {}))]
        case ("doctor", 0 | 1):
            probe = Finding("python", code == 0, "seen", "another one", needed=True)
            room.patch.setattr(doctor, "PROBES", (lambda _: probe,))
            return []
        case ("run", 0):
            room.patch.setattr(running, "load", lambda *_, **__: model(1.0))
            return ["m.mlpackage"]
        case ("diff", 0 | 1):
            values = iter([1.0, 1.0 if code == 0 else 3.0])
            room.patch.setattr(running, "load", lambda *_, **__: model(next(values)))
            return ["a.mlpackage", "b.mlpackage", "--min-psnr", "40"]
        case ("best", 0 | 1 | 3):
            found = SimpleNamespace(
                goal=goal.Goal({"psnr_db": 1}, ()),
                run=SimpleNamespace(folder=room.path / "runs" / "x"),
                trials=[],
                never={},
                labels={},
                tried=[],
                values={},
                how="",
                lacking=None,
                summary=lambda _: "",
                words=lambda _: [],
            )
            records = [nights.cell(psnr=80, status="ok" if code == 0 else "degraded")] if code != 1 else []
            found.labels = {record.cell_key: "it" for record in records}
            room.patch.setattr(search_run, "best", lambda *_: (found, records))
            return TINY
        case ("fix", 0 | 1):
            if code:
                room.patch.setattr(rewriting, "fix", raising(StageError("an output differs")))
            return [str(conv_chain(room.path / "m.mlpackage", 3))]
        case ("compress" | "chunk", 0 | 1):
            package.write(
                conv_chain(room.path / "m.mlpackage", 3), recent(package.read(room.path / "m.mlpackage").spec)
            )
            room.patch.setattr(_workers.Bench, "stage", staged(code))
            return ["m.mlpackage", *(["p4", "-o", "s.mlpackage"] if verb == "compress" else ["2", "-o", "chunks"])]
        case ("generate" | "classify", 0 | 1):
            cell = SimpleNamespace(as_dict=dict)
            partner = cells.Partner("it", cell, {"seq_len": 8, "runtime": "reference"}, {}, "random")
            room.patch.setattr(cells, "prepare_partners", lambda *_: nullcontext(([partner], room.path)))
            room.patch.setattr(session, "Session", Talking if code == 0 else raising(StageError("it died")))
            return ["text=I like cheese"] if verb == "classify" else ["prompt=Hello"]
        case ("fleet", 0):
            return ["init", str(room.path / "certificates")]
        case ("completion", 0):
            return ["bash"]
        case ("get", 0):
            room.patch.setattr(delivery, "deliver", lambda *_: [])
            runs(room, 1.0)
            return ["last", "mine"]
        case ("card", 0):
            return [str(conv_chain(room.path / "m.mlpackage", 3))]
        case ("devices" | "version" | "help" | "list", 0):
            return []
        case (_, 2):
            return ["--nonsense"]
    raise AssertionError(f"{verb} promises {code}, and no case here shows it")


def promised() -> list:
    """(verb, code) of every help."""
    found = []
    for verb in verbs.names():
        made: list[command.Parser] = [help.grammar(verb)] if verb in help.EXITS else []
        with pytest.MonkeyPatch.context() as patch:

            def read(parser, args, made=made):
                made.append(parser)
                raise SystemExit(0)

            patch.setattr(command.Parser, "read", read)
            main([verb])
        found += [(verb, code) for code in made[0].exits]
    return found


@pytest.mark.parametrize(("verb", "code"), promised())
def test_a_verb_keeps_what_its_help_promises(verb, code, room, capsys):
    if code == INTERRUPTED:
        room.patch.setattr(command.Parser, "read", raising(KeyboardInterrupt()))
        words = []
    else:
        words = arrange(room, verb, code)
    capsys.readouterr()
    assert main([verb, *words]) == code
    said = capsys.readouterr()
    assert (code == OK and not said.err) or said.err or said.out, "whatever ends otherwise than well says why"
    assert "Traceback" not in said.err


@pytest.mark.parametrize("verb", ["sweep", "best", "calibrate", "generate", "classify"])
def test_what_is_interrupted_says_how_to_go_on_as_its_help_does(verb, monkeypatch, capsys):
    said = verbs.interruption_message(verb)
    main([verb, "--help"])
    assert said != EXIT_CODES[INTERRUPTED] and f"  130  {said}\n" in capsys.readouterr().out
    monkeypatch.setattr(command.Parser, "read", raising(KeyboardInterrupt()))
    assert main([verb, *TINY]) == INTERRUPTED and capsys.readouterr().err == f"{said}\n"


def test_the_table_is_the_one_that_everybody_uses():
    assert EXIT_CODES.keys() == {OK, NOT_ALL_OK, BAD_CONFIGURATION, IN_DOUBT, INTERRUPTED} == {0, 1, 2, 3, 130}
    assert {code for _, code in promised()} == EXIT_CODES.keys()


QUIET = {"help", "completion"}  # what they print is for reading, or for a shell


@pytest.mark.parametrize("verb", [verb for verb in verbs.names() if verb not in QUIET])
def test_a_verb_that_prints_a_result_prints_it_as_json_with_what_its_help_promises(verb, room, capsys):
    words = arrange(room, verb, OK)
    if verb == "sweep":
        runs(room, 1.0)
        folder = room.path / "out" / "runs" / "20260101-000000"
        room.patch.setattr(engine, "sweep", lambda *_: (folder, []))
    if verb == "log":
        room.patch.setattr(engine, "links", lambda *_: {"compare": "http://x"})
    capsys.readouterr()
    assert main([verb, *words, "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    main([verb, "--help"])
    said = " ".join(capsys.readouterr().out.split())
    if verb == "report":
        assert isinstance(found, list) and "as one JSON array" in said
        return
    assert found["schema"] == 1
    promised = said.partition("one JSON object: ")[2].partition(" (default")[0]
    words = set(promised.replace(",", " ").replace(";", " ").split())
    if verb in ("compare", "history"):  # with more besides, which their code lists
        assert words & found.keys()
    else:
        assert found.keys() - words == {"schema"}
