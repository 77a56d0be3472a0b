"""install() and uninstall(): before and after coremltools is imported, and what is left behind."""

import subprocess
import sys

import pytest

from ane_sweep import coreml_anywhere
from ane_sweep.coreml_anywhere import hook
from ane_sweep.errors import Unavailable

BEFORE = """
import sys
from ane_sweep import coreml_anywhere
assert not {"coremltools", "torch"} & set(sys.modules), "importing the drop-in imports nothing heavy"
native = coreml_anywhere.install()
assert coreml_anywhere.install() is native, "a second install is harmless"
assert "coremltools" not in sys.modules
finders = len(sys.meta_path)
import coremltools as ct
from coremltools.models import compute_plan, model, utils
from coremltools.models.ml_program.experimental import compute_plan_utils
assert model._MLModelProxy is compute_plan._MLModelProxy is native._MLModelProxy
assert compute_plan_utils._MLComputePlanRemoteProxy is not None, "classes made at import found theirs"
assert model._is_macos() and model._macos_version() >= (15, 0) and utils._macos_version() >= (15, 0)
assert sys.platform != "darwin"
coreml_anywhere.uninstall()
assert model._MLModelProxy is None and compute_plan._MLComputePlanProxy is None
assert not model._is_macos() and utils._macos_version() == ()
assert "coremltools.libcoremlpython" not in sys.modules and not hasattr(ct, "libcoremlpython")
assert not any(isinstance(finder, coreml_anywhere.hook.AfterImport) for finder in sys.meta_path)
print("fine")
"""


@pytest.mark.slow
def test_install_before_coremltools_is_imported_and_uninstall():
    done = subprocess.run([sys.executable, "-c", BEFORE], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "fine", done.stderr[-3000:]


def test_install_after_import_and_uninstall_restores_every_name(ct):
    from coremltools.models import _compiled_model, compute_device, compute_plan, model, utils

    coreml_anywhere.uninstall()
    modules = (model, _compiled_model, compute_plan, compute_device, utils, ct)
    before = [dict(vars(module)) for module in modules]
    assert model._MLModelProxy is None

    native = coreml_anywhere.install()
    assert model._MLModelProxy is _compiled_model._MLModelProxy is native._MLModelProxy
    assert compute_device._MLCPUComputeDeviceProxy is native._MLCPUComputeDeviceProxy
    assert coreml_anywhere.installed()

    coreml_anywhere.uninstall()
    assert not coreml_anywhere.installed()
    assert [dict(vars(module)) for module in modules] == before
    assert hook.NATIVE not in sys.modules


def test_a_real_module_is_not_replaced_unless_told(ct, monkeypatch, tmp_path):
    coreml_anywhere.uninstall()
    monkeypatch.setattr(hook, "_real_module", lambda: "/somewhere/libcoremlpython.so")
    with pytest.raises(Unavailable, match=r"replace_native=True.*uninstall\(\)"):
        coreml_anywhere.install()
    assert not coreml_anywhere.installed()
    coreml_anywhere.install(replace_native=True)
    assert coreml_anywhere.installed()


def test_a_real_module_is_found_by_its_file_and_by_being_loaded(monkeypatch, tmp_path):
    import importlib.machinery
    import types

    spec = importlib.machinery.ModuleSpec("coremltools", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.delitem(sys.modules, hook.NATIVE, raising=False)
    monkeypatch.setattr(hook.importlib.util, "find_spec", lambda name: spec)
    assert hook._real_module() is None
    file = tmp_path / f"libcoremlpython{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    file.write_bytes(b"")
    assert hook._real_module() == str(file)
    file.unlink()
    monkeypatch.setitem(sys.modules, hook.NATIVE, types.ModuleType("real"))
    assert hook._real_module() == "real"
