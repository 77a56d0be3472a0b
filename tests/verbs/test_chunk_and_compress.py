"""`chunk` and `compress`: a sweep's own workers on one package; what they leave is whole, or is not there."""

import json
from pathlib import Path

import numpy as np
import pytest
from placement.by_hand import conv_chain

from ane_sweep.__main__ import main
from ane_sweep.bridge.record import Status, read_records
from ane_sweep.bridge.task import TaskResult
from ane_sweep.errors import ChunkError, StageError
from ane_sweep.mil import package
from ane_sweep.runner import isolate
from ane_sweep.verbs import _workers
from ane_sweep.worker.stages import chunk as chunk_stage


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = conv_chain(tmp_path / "x.mlpackage", 3)
    spec = package.read(path).spec
    spec.specificationVersion = 9
    package.write(path, spec)
    return tmp_path


@pytest.fixture
def dying(monkeypatch):
    """Every worker dies, having left half of its work."""

    def run(task, folder, **_):
        conv_chain(task.out / "model.mlpackage", 1)
        return TaskResult(task.stage, task.key, "crashed", "killed by SIGSEGV")

    monkeypatch.setattr(isolate, "run_task", run)


@pytest.mark.parametrize(
    "words", [["compress", "x.mlpackage", "p4", "-o", "y.mlpackage"], ["chunk", "x.mlpackage", "2", "-o", "y"]]
)
def test_a_worker_that_dies_leaves_nothing_and_what_was_there(here, dying, capsys, words):
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "killed by SIGSEGV" in said and "nothing was written" in said
    assert {path.name for path in here.iterdir()} == {"x.mlpackage"}
    before = (
        conv_chain(here / words[-1], 1) if words[0] == "compress" else conv_chain(here / "y" / "chunk_01.mlpackage", 1)
    )
    assert main([*words, "--force"]) == 1
    assert before.is_dir() and {path.name for path in here.iterdir()} == {"x.mlpackage", words[-1]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compress x.mlpackage p44 -o y.mlpackage", "precision=p44: unknown (did you mean 'p4'?)"),
        ("compress x.mlpackage fp32 -o y.mlpackage", "compresses no weights; p4 does"),
        ("compress x.mlpackage p4 -o y", "a package is called NAME.mlpackage"),
        ("compress x.mlpackage p4 -o no/y.mlpackage", "is no folder that can be written to"),
        ("compress x.mlpackage p4 -o x.mlpackage --force", "that is the package itself"),
        ("compress x.mlpackage p4 -o x.mlpackage/y.mlpackage", "one holds the other"),
        ("compress x.mlpackage p4", "compress: -o PATH is missing"),
        ("compress none p4 -o y.mlpackage", "no such model"),
        ("chunk x.mlpackage two -o y", "two: expected how many chunks, a number from 2 to 1000"),
        ("chunk x.mlpackage 1 -o y", "a number from 2"),
        ("chunk x.mlpackage 2 -o y.mlpackage", "give a folder for them"),
        ("chunk x.mlpackage 2 -o mine --force", "is there, and is nothing that this verb makes"),
        ("chunk x.mlpackage 2 -o . --force", "is there, and is nothing that this verb makes"),
        ("chunk x.mlpackage 2 -o chunks", "is there already; give another place, or --force"),
        ("chunk chunks/chunk_01.mlpackage 2 -o chunks --force", "one holds the other"),
        ("chunk x.mlpackage 2 -o /dev/null/y", "/dev/null is no folder that can be written to"),
        ("chunk x.mlpackage 2 -o /proc/y", "proc/y: cannot be written (No such"),
        ("chunk x.mlpackage 2 -o y --by weight", "unknown; choices: bytes, layers"),
    ],
)
def test_a_wrong_word_is_a_sentence_and_touches_nothing(here, capsys, words, said):
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    conv_chain(here / "chunks" / "chunk_01.mlpackage", 1)
    before = sorted(here.rglob("*"))
    assert main(words.split()) == 2
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error and sorted(here.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("3 --own both", "--own both: model.mlpackage has no lookup"),
        ("--at op:nosuch", "--at op:nosuch: nosuch is the name of no op there"),
        ("--at layer:7", "--at layer:7: the names of the weights of model.mlpackage number no layers"),
        ("90", "90 chunks: "),
    ],
)
def test_a_cut_that_cannot_be_is_said_in_the_words_of_the_verb(here, capsys, monkeypatch, words, said):
    def cut(bench, name, params, inputs):
        with pytest.raises(ChunkError) as error:
            chunk_stage.run(params, inputs, here / "made")
        raise StageError(f"{bench.package}: {name}: {error.value}")

    monkeypatch.setattr(_workers.Bench, "stage", cut)
    assert main(["chunk", "x.mlpackage", *words.split(), "-o", "y"]) == 1
    assert said in capsys.readouterr().err


def net(path: Path) -> Path:
    """Three linear layers after a lookup, in fp16, for iOS18."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder as mb
    from coremltools.converters.mil.mil import types

    random = np.random.default_rng(0)
    table = random.standard_normal((300, 64)).astype(np.float16)
    weights = [random.standard_normal((64, 64)).astype(np.float16) / 8 for _ in range(3)]

    @mb.program(input_specs=[mb.TensorSpec((1, 8), types.int32)], opset_version=ct.target.iOS18)
    def program(ids):
        x = mb.gather(x=table, indices=ids, axis=0)
        for weight in weights:
            x = mb.add(x=x, y=mb.relu(x=mb.linear(x=x, weight=weight)))
        return mb.identity(x=x, name="y")

    made = ct.convert(
        program, convert_to="mlprogram", minimum_deployment_target=ct.target.iOS18, skip_model_load=True,
        compute_precision=ct.precision.FLOAT32, outputs=[ct.TensorType(dtype=np.float16)],
    )  # fmt: skip
    made.save(str(path))
    return path


@pytest.mark.slow
def test_a_package_is_compressed_cut_and_swept_by_the_same_workers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    net(tmp_path / "n.mlpackage")
    assert main(["compress", "n.mlpackage", "p4", "-o", "small.mlpackage", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        found["bytes_after"] < found["bytes_before"] and 20 < found["psnr_db"] < 60 and found["weights_compressed"] == 4
    )
    assert main(["chunk", "small.mlpackage", "2", "-o", "chunks"]) == 0
    assert "the same bits as the whole" in capsys.readouterr().out
    assert sorted(path.name for path in Path("chunks").iterdir()) == ["chunk_01.mlpackage", "chunk_02.mlpackage"]

    whole = {"ids": np.zeros((2, 1, 8), np.int32)}
    np.savez("against.npz", **whole, y=np.zeros((2, 1, 8, 64), np.float32))
    words = [
        "model=package",
        "gate.wait_s=0",
        "latency.repeats=1",
        "latency.samples=2",
        "tracking.enabled=false",
        "out=o",
    ]
    assert main(["-m", *words, "model.path=n.mlpackage", "precision=fp16,p4", "chunks=1,2"]) in (0, 3)
    records = read_records(next(Path("o/runs").iterdir()))
    assert {record.status for record in records} <= {Status.OK, Status.DEGRADED}
    exact, cut, coarse, both = [record.value("psnr_db") for record in records]
    assert exact == cut > 60 > coarse == both
    assert {stage.stage for stage in records[0].stages} >= {"adopt", "reference", "score", "latency"}
    assert records[0].weights.kind == "package" and records[0].realised["texts"] == "seeded inputs"
    assert not [stage for stage in records[0].stages if stage.stage == "convert"]

    assert main([*words, "model.path=n.mlpackage", "model.reference=against.npz", "model.texts.count=2"]) in (0, 3)
    record = read_records(sorted(Path("o/runs").iterdir())[-1])[0]
    assert record.realised["texts"] == "reference file" and record.value("psnr_db") < 10
