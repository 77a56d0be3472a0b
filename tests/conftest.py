import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # hub_server, tiny: shared by tests in every room

from browsers import chromium, opened, screenshots  # noqa: F401  fixtures for every room

# Files whose slow tests take longest: begun first, so that no process ends long after the others (with --no-loadscope-reorder,
# as else pytest-xdist begins with the files of most tests).
_LONGEST = (
    "coreml/test_sweep_on_a_stand_in.py", "test_sweep.py", "test_declarations.py", "doctor/test_doctor.py",
    "test_check.py", "proof/test_notebooks.py", "test_mlflow_pages.py", "grow/test_equal.py",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """The hub is out of bounds unless a test serves one itself."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def no_tracker_of_ours(monkeypatch):
    """Whoever runs the tests may have one, and MLflow itself sets the variable in a process that it is used in."""
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session", autouse=True)
def a_quiet_machine():
    """The gate before a timing sees an idle processor: tests run on machines of any load, do not wait, and no cell of
    theirs is degraded for it. (For the whole session: a module's own sweep is run before its first test begins.)"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ane_sweep.runner.gate._idle_share", lambda: 1.0)
        yield


@pytest.fixture(scope="module", autouse=True)
def what_is_imported_stays():
    """coremltools collects garbage after every conversion, of which there are a thousand here: torch, transformers and
    coremltools themselves (0.2 s each time) are left out of that."""
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    from hypothesis import settings

    settings.register_profile("here", deadline=None)  # examples do real work, on machines of any speed
    settings.load_profile("here")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not str(item.path).endswith(_LONGEST))
