"""A package that somebody made is a value of `model`: settled from its description, refused with the way out."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from placement.by_hand import Writer, conv_chain

from ane_sweep.__main__ import main
from ane_sweep.bridge.task import TaskResult
from ane_sweep.errors import ConfigError
from ane_sweep.mil import package
from ane_sweep.mil.proto import Model_pb2
from ane_sweep.planner import config, packages
from ane_sweep.planner.settle import plan_for
from ane_sweep.store.cache import Store
from ane_sweep.worker.stages import adopt

MODEL = ["model=package", "out=o"]


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(name: str = "x.mlpackage", target: int = 9, **more: object) -> Path:
    """A chain of convolutions in fp16 for iOS18 (6: iOS15)."""
    path = conv_chain(Path(name), 3, **more)
    spec = package.read(path).spec
    spec.specificationVersion = target
    package.write(path, spec)
    return path


def settle(path: Path, **option: object):
    return packages.resolve({"name": "package", "path": str(path), **option}, "pretrained", 0, Path("digests.json"))


def test_it_is_taken_in_compressed_and_cut_and_nothing_is_converted(here, capsys):
    made()
    words = ["model.path=x.mlpackage", "precision=fp16,p4,int8_channel", "chunks=1,2", "compute_units=all,cpu_only"]
    assert main(["plan", "-m", *MODEL, *words]) == 0
    said = capsys.readouterr().out
    assert "12 cells" in said and "conversions" not in said
    for line in (
        "1 fp32 references  for 12",
        "1 packages taken in for 12",
        "2 compressions     for 8",
        "3 chunkings        for 6",
    ):
        assert line in said
    assert main(["plan", "-m", *MODEL, "model.path=x.mlpackage", "target=iOS17,iOS18", "seq_len=8,16"]) == 0
    said = capsys.readouterr().out
    assert "target not applicable to model=package" in said and "seq_len not applicable" in said
    assert "1 packages taken in for 4" in said


def test_its_seconds_are_scaled_by_its_own_records_alone(here):
    """Nets of one size take times that differ tenfold, and of a package's ops the planner knows nothing."""
    request = config.load(["model=package", f"model.path={made()}", "runtime=reference"])
    with Store(here / "cache") as store:
        tasks = plan_for(request, store, here).tasks.values()
        own = {task.sort for task in tasks}
        store.record_history(next(iter(tasks)), TaskResult("reference", "", "ok", seconds=50.0))
        again = {task.stage: task.seconds for task in plan_for(request, store, here).tasks.values()}
    (sort,) = own
    assert sort.endswith(" x.mlpackage") and again["reference"] == pytest.approx(50.0)


def test_split_einsum_of_a_package_is_its_rewrites_for_placement(here, capsys):
    made(target=7)
    assert main(["plan", "-m", *MODEL, "model.path=x.mlpackage", "variant=original,split_einsum"]) == 0
    said = capsys.readouterr().out
    assert "variant=split_einsum of package is taken as rewrite=ane" in said
    assert "1 packages taken in for 2" in said and "1 rewritings" in said
    assert main(["plan", *MODEL, "model.path=x.mlpackage", "variant=split_einsum", "runtime=torch_eager"]) == 2
    assert "rewrites its program, and runtime=torch_eager has none" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["variant=split_einsum_v2"], "package is taken as it is: variant=original"),
        (["runtime=torch_eager"], "a package has none; use runtime=reference or coreml"),
        (["precision=fp32"], "x.mlpackage is a program already (fp16); use precision=fp16 (as it is)"),
        (["precision=fp16_norms_fp32"], "decides at conversion what is computed in fp32"),
        (["mask=causal_input"], "is for the models of blocks that are built here"),
        (
            ["precision=p4", "compressor=coreai_opt"],
            "coreai-opt compresses torch modules, and package is a package: compressor=ane_sweep",
        ),
        (["precision=p4_g16"], "precision=p4_g16 needs target=iOS18 or newer"),
    ],
)
def test_what_only_acts_at_conversion_is_refused(here, capsys, words, said):
    made(target=7)
    assert main(["plan", *MODEL, "model.path=x.mlpackage", *words]) == 2
    assert said in capsys.readouterr().out


def test_what_is_compressed_already_or_has_several_functions_is_not_compressed(here, capsys):
    writer = Writer(x=("fp16", (1, 64)))
    table = writer.const("fp16", (64, 64))
    weight = writer.op("constexpr_lut_to_dense", ("fp16", (64, 64)), lut=table)
    writer.op("linear", ("fp16", (1, 64)), x="x", weight=weight)
    spec = package.read(writer.save(Path("x.mlpackage"))).spec
    spec.specificationVersion = 9
    package.write(Path("x.mlpackage"), spec)
    assert main(["plan", *MODEL, "model.path=x.mlpackage", "precision=p4"]) == 2
    assert "x.mlpackage holds 1 compressed weights already" in capsys.readouterr().out
    path = made("y.mlpackage")
    spec = package.read(path).spec
    (only,) = spec.mlProgram.functions
    spec.mlProgram.functions["other"].CopyFrom(spec.mlProgram.functions[only])
    spec.description.defaultFunctionName = only
    package.write(path, spec)
    assert main(["plan", "-m", *MODEL, "model.path=y.mlpackage", "precision=fp16,p4"]) == 0
    said = capsys.readouterr().out
    assert (
        "has 2; model.function=NAME takes one, or use precision=fp16" in said
        and f"function {only} of {only}, other is scored" in said
    )


def test_one_function_of_several_is_taken_out_as_a_program_of_its_own(here, capsys):
    path = made("y.mlpackage")
    spec = package.read(path).spec
    (only,) = spec.mlProgram.functions
    spec.mlProgram.functions["other"].CopyFrom(spec.mlProgram.functions[only])
    for name in (only, "other"):
        described = spec.description.functions.add(name=name)
        described.input.extend(spec.description.input)
        described.output.extend(spec.description.output)
    for field in ("input", "output"):
        spec.description.ClearField(field)
    spec.description.defaultFunctionName = only
    package.write(path, spec)
    assert (
        main(["plan", "-m", *MODEL, "model.path=y.mlpackage", f"model.function={only},other", "precision=fp16,p4"]) == 0
    )
    said = capsys.readouterr().out
    assert (
        f"function other of {only}, other is scored" in said
        and "4 packages" not in said
        and "2 packages taken in" in said
    )
    (Path("out")).mkdir()
    adopt.run({"package": "digest", "function": "other"}, {"package": path}, Path("out"))
    taken = package.read(Path("out/model.mlpackage")).spec
    sizes = [next(one.rglob("weight.bin")).stat().st_size for one in (path, Path("out/model.mlpackage"))]
    assert sizes[0] == sizes[1], "both functions have the same weights"
    assert [*taken.mlProgram.functions] == ["main"] and not taken.description.functions
    assert [one.name for one in taken.description.input] == [one.name for one in spec.description.functions[1].input]
    assert main(["plan", *MODEL, "model.path=y.mlpackage", "model.function=third"]) == 2
    assert f"has no function 'third'; its functions: {only}, other" in capsys.readouterr().err


def test_the_key_is_the_content_and_not_the_identifiers_of_the_manifest(here):
    first = settle(made())
    shutil.copytree("x.mlpackage", "again.mlpackage")
    manifest = Path("again.mlpackage/Manifest.json")
    manifest.write_text(manifest.read_text().replace("-", "0"))
    assert settle(Path("again.mlpackage")).digest == first.digest
    weights = next(Path("x.mlpackage").rglob("weight.bin"))
    weights.write_bytes(b"\1" + weights.read_bytes()[1:])
    assert settle(Path("x.mlpackage")).digest != first.digest
    assert first.arch["compute"] == "fp16" and first.arch["target"] == "iOS18"


def test_a_file_that_is_scored_against_enters_the_key_of_the_reference(here):
    path = made()
    for value in (0.0, 1.0):
        np.savez(f"{value}.npz", x=np.full((1, 1, 64, 32, 32), value))
    archs = [settle(path, reference=f"{value}.npz").arch for value in (0.0, 1.0)]
    assert archs[0] != archs[1] and "expected" in archs[0]
    with pytest.raises(ConfigError, match="give one of them"):
        settle(path, reference="0.0.npz", samples="1.0.npz")
    with pytest.raises(ConfigError, match=r"model.samples=nope.npz: no such file"):
        settle(path, samples="nope.npz")
    Path("text.npz").write_text("no")
    with pytest.raises(ConfigError, match=r"is no \.npz file"):
        settle(path, samples="text.npz")


def old_network(path: Path) -> None:
    spec = Model_pb2.Model(specificationVersion=4)
    spec.neuralNetwork.SetInParent()
    path.write_bytes(spec.SerializeToString())


def test_what_is_no_ml_program_is_refused_with_the_way(here, capsys):
    old_network(Path("old.mlmodel"))
    Path("c.mlmodelc").mkdir()
    Path("empty.mlpackage").mkdir()
    for name, said in (
        ("old.mlmodel", "holds a neuralNetwork. Nothing makes an ML Program of it: convert it again from its source"),
        ("c.mlmodelc", "a compiled model is loaded by Core ML alone, which needs macOS; give the .mlpackage"),
        ("empty.mlpackage", "has no Manifest.json"),
        ("none.mlpackage", "no such model"),
        ("null", "model.path is missing: model.path=FILE.mlpackage"),
    ):
        assert main(["plan", *MODEL, f"model.path={name}"]) == 2
        error = capsys.readouterr().err
        assert said in error and "Traceback" not in error
    made()
    assert main(["plan", *MODEL, "model.path=x.mlpackage", "weights=random"]) == 2
    assert "a package, which holds its weights" in capsys.readouterr().err


def test_the_limits_of_taking_in_are_nobodys_to_set(here, capsys):
    made()
    assert main(["plan", *MODEL, "model.path=x.mlpackage", "limits.adopt.timeout_s=5"]) == 2
    assert "limits.adopt" in capsys.readouterr().err
