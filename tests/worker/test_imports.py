"""What coremltools is not given while it is imported, and everybody else is."""

import subprocess
import sys

import pytest

ASK = """
import sys
from ane_sweep.worker import imports
imports.skip_unused(); imports.skip_unused()
import {package}
print([name in sys.modules for name in ("sklearn", "pandas", "xgboost", "scipy.stats")])
import sklearn
print(sklearn.__name__)
"""


def said(package: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(package=package)], capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_coremltools_does_not_bring_scikit_learn_which_can_be_imported_afterwards():
    pytest.importorskip("sklearn")
    assert said("coremltools") == ["[False, False, False, False]", "sklearn"]


def test_only_while_coremltools_is_imported_is_anything_refused(tmp_path, monkeypatch):
    """A package of coremltools' name that asks as coremltools does."""
    (tmp_path / "coremltools").mkdir()
    (tmp_path / "coremltools" / "__init__.py").write_text(
        "found = []\ntry:\n    import sklearn\nexcept ImportError as error:\n    found.append(error.name)\n"
    )
    (tmp_path / "sklearn.py").write_text("")
    script = (
        "from ane_sweep.worker import imports; imports.skip_unused()\nimport coremltools, sys\n"
        "assert coremltools.found == ['sklearn'] and 'sklearn' not in sys.modules\nimport sklearn\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{script}"], check=True)
