"""The examples in the docstrings of the libraries mil, reference, placement, hwx and stats run as they are written."""

import ast
import shutil
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SAMPLES = Path(__file__).parent / "hwx" / "samples"


def example(library: str) -> str:
    """Return the first indented block of a library's docstring, up to the paragraph that is no code."""
    text = ast.get_docstring(ast.parse((ROOT / "ane_sweep" / library / "__init__.py").read_text(encoding="utf-8")))
    paragraphs = text.split("\n\n")[1:]
    code = []
    for paragraph in map(textwrap.dedent, paragraphs):
        try:
            compile(paragraph, library, "exec")
        except SyntaxError:
            break
        code.append(paragraph)
    return "\n\n".join(code)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_stats(capsys):
    exec(example("stats"), {})
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_hwx(here, capsys):
    (here / "folder").mkdir()
    for name in ("relu", "conv"):
        shutil.copy(SAMPLES / f"{name}.hwx", here / "folder")
    shutil.copy(SAMPLES / "relu.hwx", here / "model.hwx")
    exec(example("hwx"), {})
    assert "NE" in capsys.readouterr().out


@pytest.fixture
def model(here):
    ct = pytest.importorskip("coremltools")
    from coremltools.converters.mil import Builder as mb
    from coremltools.converters.mil.mil import types

    @mb.program(input_specs=[mb.TensorSpec((1, 8), types.fp32)], opset_version=ct.target.iOS16)
    def program(x):
        return mb.relu(x=mb.linear(x=mb.tanh(x=x), weight=[[0.5] * 8] * 8), name="y")

    ct.convert(program, convert_to="mlprogram", skip_model_load=True).save(str(here / "model.mlpackage"))


@pytest.mark.parametrize("library", ("mil", "reference", "placement"))
def test_a_library_that_reads_packages(library, model, capsys):
    exec(example(library), {})
    assert capsys.readouterr().out
