"""Reading the files that a user's module is made from: bounded in bytes, in number and in depth."""

import os
import resource

import pytest

from ane_sweep.errors import ConfigError
from ane_sweep.planner import sources


def chain(folder, count):
    for number in range(count):
        (folder / f"part{number}.py").write_text(f"import part{number + 1}\n" if number + 1 < count else "")
    return folder / "part0.py"


@pytest.mark.slow
def test_a_long_chain_of_imports_is_followed_to_its_end(tmp_path):
    found = sources.of_file(chain(tmp_path, 1200), [tmp_path])
    assert len(found.files) == 1200


def test_more_files_than_any_model_has_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MOST_FILES", 1000)
    with pytest.raises(ConfigError, match=r"it imports more than 1,000 files, by way of .*part\d+\.py"):
        sources.of_file(chain(tmp_path, 1100), [tmp_path])


def test_a_huge_source_file_is_refused_without_being_read(tmp_path):
    path = tmp_path / "nets.py"
    path.touch()
    os.truncate(path, 3 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(
        ConfigError, match=r"nets\.py is no source file to read: it has 3,221,225,472 bytes, more than 10,000,000"
    ):
        sources.of_file(path, [tmp_path])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_a_module_that_is_imported_twice_is_one_file(tmp_path):
    (tmp_path / "nets.py").write_text("import a\nimport b\n")
    (tmp_path / "a.py").write_text("import b\nfrom nets import x\n")
    (tmp_path / "b.py").write_text("import a\n")
    assert sorted(sources.of_file(tmp_path / "nets.py", [tmp_path]).files) == ["a", "b", "nets", "nets.py"]
