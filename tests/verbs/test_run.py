"""`ane-sweep run` and `ane-sweep diff` on packages made elsewhere."""

import numpy as np
import pytest
import torch

from ane_sweep import reference
from ane_sweep.__main__ import main
from ane_sweep.errors import ConfigError
from ane_sweep.verbs.diff import compare_values, diff
from ane_sweep.verbs.run import describe_numerics, run

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The same two ops in fp32 and in fp16, and one with another factor."""
    import coremltools as ct
    from coremltools.converters.mil.mil import Builder as mb
    from coremltools.converters.mil.mil import types

    folder = tmp_path_factory.mktemp("models")

    def save(name, factor, precision, output="y"):
        goal = ct.target.iOS16
        spec = mb.TensorSpec(X.shape, types.fp32)

        @mb.program(input_specs=[spec], opset_version=goal)
        def program(x):
            return mb.mul(x=mb.exp(x=x, name="raised"), y=np.float32(factor), name=output)

        model = ct.convert(program, minimum_deployment_target=goal, compute_precision=precision, skip_model_load=True)
        model.save(str(folder / f"{name}.mlpackage"))
        return str(folder / f"{name}.mlpackage")

    return {
        "wide": save("wide", 3, ct.precision.FLOAT32),
        "half": save("half", 3, ct.precision.FLOAT16),
        "other": save("other", 4, ct.precision.FLOAT32),
        "renamed": save("renamed", 3, ct.precision.FLOAT32, output="z"),
    }


@pytest.fixture
def x(tmp_path):
    np.save(tmp_path / "x.npy", X)
    return str(tmp_path / "x.npy")


def test_run(models, x, tmp_path, capsys):
    out = tmp_path / "out.npz"
    assert run([models["wide"], "--input", x, "--output", str(out), "--value", "raised"]) == 0
    text = capsys.readouterr().out
    assert "on the reference runtime: fp32" in text and "y: float32 [3, 4] from 1.10364 to 8.15485" in text
    found = np.load(out)
    np.testing.assert_allclose(found["y"], 3 * np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(found["raised"], np.exp(X), rtol=1e-6)


def test_run_by_name_and_at_random(models, x, tmp_path, capsys):
    np.savez(tmp_path / "all.npz", x=X)
    for given in (["--input", f"x={x}"], ["--input", str(tmp_path / "all.npz")], ["--random", "3"]):
        assert run([models["half"], *given, "--watch", "--drift", "2", "--numerics", "fp16"]) == 0
        text = capsys.readouterr().out
        assert "fp16 storage, fp32 accumulation" in text and "0 of them with NaN" in text
        assert "ops that lose most against fp32" in text and "exp" in text


def test_what_is_wrong_is_said(models, x, tmp_path, capsys):
    assert main(["run", str(tmp_path / "no.mlpackage")]) == 2
    assert "no such model" in capsys.readouterr().err
    assert main(["run", models["wide"]]) == 2
    assert "'x' is missing. It takes x (float32 [3, 4])" in capsys.readouterr().err
    assert main(["run", models["wide"], "--random", "0", "--output", str(tmp_path / "no" / "out.npz")]) == 2
    assert "out.npz: cannot be written (No such file or directory)" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"--input .*none\.npy: cannot be read"):
        run([models["wide"], "--input", str(tmp_path / "none.npy")])
    for name, content in (("empty.npy", b""), ("cut.npz", b"PK\3\4cut"), ("odd.png", b"odd")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=f"--input .*{name}: cannot be read"):
            run([models["wide"], "--input", str(tmp_path / name)])
    with pytest.raises(ConfigError, match="no input is called 'y'; inputs: x"):
        diff([models["wide"], models["half"], "--random", "0", "--input", f"y={x}"])
    with pytest.raises(ConfigError, match="-1: expected a whole number of 0 or more"):
        run([models["wide"], "--random=-1"])
    with pytest.raises(ConfigError, match=r"--outptu: unknown here \(did you mean '--output'\?\)"):
        run([models["wide"], "--outptu", "x"])
    with pytest.raises(ConfigError, match="fp8: unknown; choices: fp16, fp32, ane"):
        run([models["wide"], "--numerics", "fp8"])
    half = reference.load(models["half"])
    assert describe_numerics(half) == half.realised["numerics"] == "fp16 storage, fp32 accumulation"
    half.realised["device"] = "NVIDIA A"
    assert describe_numerics(half) == "fp16 storage, fp32 accumulation, on NVIDIA A"
    if not torch.cuda.is_available():
        assert main(["run", models["wide"], "--input", x, "--device", "cuda"]) == 2
        assert "device=cuda: this PyTorch" in capsys.readouterr().err


def test_diff(models, x, capsys):
    assert diff([models["wide"], models["half"], "--input", x]) == 0
    text = capsys.readouterr().out
    assert "y: PSNR 7" in text and "the first that differs is raised_cast_fp16" in text
    assert diff([models["wide"], models["wide"]]) == 0
    text = capsys.readouterr().out
    assert "the whole program: cost 100.0 to 100.0 %" in text and "each on its unit" in text
    assert "equal to the last bit" in text and "2 values of B are compared" in text and "all of them are equal" in text
    assert "inputs: random, seed 0" in text
    assert diff([models["wide"], models["other"], "--min-psnr", "60"]) == 1
    assert "the first that differs is y (mul)" in capsys.readouterr().out
    assert diff([models["wide"], models["renamed"]]) == 0
    assert "  y: only A makes it\n  z: only B makes it\n" in capsys.readouterr().out
    assert diff([models["wide"], models["renamed"], "--min-psnr", "1"]) == 1, "nothing was compared"


def test_outputs_compared():
    a = np.float32([[3, 4]])
    assert compare_values(a, a) == ("equal to the last bit, [1, 2]", np.inf)
    text, psnr = compare_values(a, a + np.float32([[0, 0.4]]))
    assert psnr == pytest.approx(20 * np.log10(4) - 10 * np.log10(0.08), abs=1e-4) and text.startswith("PSNR 23.0 dB")
    assert compare_values(a, a.T)[0] == "shapes [1, 2] and [2, 1]"
    assert compare_values(a, np.float32([[3, np.nan]]))[0].startswith("1 of 2 elements are not finite")
    empty = np.full((1, 2), np.nan, np.float32)
    assert compare_values(empty, empty) == ("no element is finite in both, [1, 2]", -np.inf), (
        "a gate must not open for it"
    )
    half = np.float32([[1, np.inf]])
    assert compare_values(half, half) == (
        "equal to the last bit, [1, 2]; 1 of 2 elements are not finite in either",
        np.inf,
    )
    assert compare_values("cat", "dog")[0] == "'cat' and 'dog'"
