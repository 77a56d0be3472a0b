"""Every verb that writes to a path of the user's: what lies there and is no regular file stays what it is.

All of it happens in a temporary folder. A device node is made there, of the null device's numbers; without the right to
make one, that case is skipped.
"""

import os
import stat
import threading
from pathlib import Path

import constructed
import numpy as np
import pytest

from ane_sweep import errors
from ane_sweep.__main__ import main
from ane_sweep.bridge import disk
from ane_sweep.bridge.record import write_records
from ane_sweep.verbs import run as running

SAMPLE = Path(__file__).parent.parent / "hwx" / "samples" / "conv.hwx"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """An outputs folder with one finished run."""
    out = tmp_path_factory.mktemp("outputs")
    folder = out / "runs" / "20260101-000000"
    write_records(folder, constructed.records(2))
    disk.write_json(folder / "run.json", {
        "schema": 1, "stamp": folder.name, "plan_key": "k", "command": ["model=minilm"], "started": "2026-01-01T00:00:00+00:00",
        "finished": "2026-01-01T00:01:00+00:00",
    })  # fmt: skip
    return out


def predict(path: Path, out: Path) -> int:
    """What `run --output` does with the arrays of a prediction."""
    try:
        running._write(path, {"y": np.arange(3)})
    except errors.AneSweepError as error:
        print(error)
        return 2
    return 0


VERBS = {
    "report --html": lambda path, out: main(["report", "last", "--html", str(path), f"out={out}"]),
    "report --markdown": lambda path, out: main(["report", "last", "--markdown", str(path), f"out={out}"]),
    "export": lambda path, out: main(["export", "last", str(path), f"out={out}"]),
    "hwx": lambda path, out: main(["hwx", str(SAMPLE), "--svg", str(path)]),
    "nightly write": lambda path, out: main(["nightly", "write", "cron", str(path.parent), f"out={out}"]),
    "run --output": predict,
}
BEGINS = {
    "export": b"PK",
    "run --output": b"PK",
    "hwx": b"<svg",
    "report --markdown": b"# sweep",
    "nightly write": b"30 2",
}


@pytest.fixture(params=VERBS)
def write(request, out, tmp_path):
    """(a function that writes to the path, the path, how the content begins)."""
    return (
        lambda: VERBS[request.param](tmp_path / "ane-sweep-nightly.cron", out),
        tmp_path / "ane-sweep-nightly.cron",
        BEGINS.get(request.param, b"<!doctype html"),
    )


@pytest.mark.slow
@pytest.mark.ci
def test_a_file_is_replaced_and_keeps_its_permissions(write):
    do, path, begins = write
    assert do() == 0 and path.read_bytes().lower().startswith(begins.lower())
    path.write_text("old" * 100_000)
    path.chmod(0o600)
    assert do() == 0 and path.read_bytes().lower().startswith(begins.lower())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_pipe_is_written_to(write, capsys):
    do, path, begins = write
    os.mkfifo(path)
    read = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()), daemon=True)
    reader.start()
    assert do() == 0
    reader.join(10)
    assert read and read[0].lower().startswith(begins.lower())
    assert stat.S_ISFIFO(path.lstat().st_mode) and f"{path} is a pipe" in capsys.readouterr().err


def test_a_device_is_written_to(write, capsys):
    do, path, _ = write
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        path.write_bytes(b"x")  # a mount may forbid devices
    except OSError as error:
        pytest.skip(f"no device node can be made here: {error}")
    assert do() == 0
    assert stat.S_ISCHR(path.lstat().st_mode) and f"{path} is a device" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_and_said(write, there, tmp_path_factory, capsys):
    do, path, begins = write
    target = tmp_path_factory.mktemp("elsewhere") / "target"
    if there:
        target.write_text("old" * 100_000)
    path.symlink_to(target)
    assert do() == 0
    assert path.is_symlink() and target.read_bytes().lower().startswith(begins.lower())
    assert f"{path} is a link to {target}" in capsys.readouterr().err


def test_a_folder_is_refused(write, capsys):
    do, path, _ = write
    path.mkdir()
    assert do() == 2
    assert "it is a folder" in "".join(capsys.readouterr()) and not any(path.iterdir())


def test_get_makes_its_folder_and_follows_no_link(tmp_path):
    from ane_sweep.bundles import delivery

    (tmp_path / "empty").mkdir()
    for name, target in (("link", "empty"), ("dangling", "nothing")):
        (tmp_path / name).symlink_to(tmp_path / target)
        with pytest.raises(errors.ConfigError, match="is a link; give a folder that is to be made"):
            delivery.deliver(constructed.records(1)[0], None, tmp_path / name)
        assert (tmp_path / name).is_symlink()
