"""The examples as Jupyter runs them, a sweep that is interrupted and gone on with, and the types that a user's file is checked by."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ane_sweep

EXAMPLES = sorted((Path(ane_sweep.__file__).parent / "examples").glob("*.ipynb"))
SWEEP = (
    "model=tiny-gpt2 weights=random seq_len=16 runtime=torch_eager latency.samples=3 latency.repeats=1 gate.wait_s=0"
)
WORDS = [*SWEEP.split(), "variant=original,split_einsum", "tracking.enabled=false"]


def test_the_examples_are_kept_without_outputs():
    assert len(EXAMPLES) == 3
    for path in EXAMPLES:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert cells[0]["cell_type"] == "markdown", path
        assert not [one for one in cells if one.get("outputs") or one.get("execution_count")], path


def executed(path, folder):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    book = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
    ).execute()
    return [out.get("data", {}) for cell in book.cells if cell.cell_type == "code" for out in cell.outputs]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_to_its_end(path, tmp_path):
    shown = executed(path, tmp_path)
    plain = "\n".join(data.get("text/plain", "") for data in shown)
    said = {
        "which_ops": ["1 off the ANE (1 cumsum): cumsum has no ANE kernel", "'running_sum': (1, 256, 1, 512)"],
        "which_precision": ["13/13 done", "measured.psnr_db", "int8_channel"],
        "compare_sweeps": ["5/5 done", "measured.latency_median_ms.before", "True"],
    }[path.stem]
    assert [text for text in said if text not in plain] == [], plain
    frames = [data["text/html"] for data in shown if "<iframe" in data.get("text/html", "")]
    assert len(frames) == (path.stem == "which_precision") and all("srcdoc=" in frame for frame in frames)


INTERRUPTED = """
import asyncio, os, pathlib, signal, sys, threading, time
import ane_sweep
out, words = pathlib.Path(sys.argv[1]), [*sys.argv[2:], f"out={sys.argv[1]}"]

def stop():
    while not list(out.glob("runs/*/tasks/*/result.json")):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=stop, daemon=True).start()
try:
    ane_sweep.sweep(*words)
except KeyboardInterrupt:
    pass
else:
    sys.exit("it was not interrupted")
(folder,) = out.glob("runs/*")
done = {path: path.stat().st_mtime_ns for path in folder.glob("tasks/*/result.json")}

async def main():
    found = await asyncio.to_thread(ane_sweep.sweep, *words)
    assert found.path == folder and len(found.records) == 2, found
    assert {path: path.stat().st_mtime_ns for path in done} == done, "something was done twice"
    assert any("which was interrupted" in line for line in found.said), found.said
    again = ane_sweep.sweep(*words, "resume=last")  # in the thread of the event loop
    assert again.path == folder and again.records == found.records
    assert found.frame()["status"].isin(["ok", "degraded"]).all(), found.frame()

asyncio.run(main())
"""


@pytest.mark.slow
def test_an_interrupted_sweep_goes_on_in_the_same_process_from_a_thread_and_beside_an_event_loop(tmp_path):
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), *WORDS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


USER = """
import numpy as np
from pathlib import Path
import ane_sweep

planned = ane_sweep.plan("model=minilm", chunks=[1, 2])
cells: int = len(planned.cells)
found = ane_sweep.sweep("model=minilm", chunks=[1, 2], out=Path("out"))
median: object = found.records[0].value("latency_median_ms")
folder: Path = found.path
good: bool = found.ok and ane_sweep.lint("x.mlpackage", chip="m1").ok
made: dict[str, np.ndarray] = ane_sweep.predict("x.mlpackage", {"x": np.zeros(3)})
saved: Path = found.report().save("x.html")
reasons: list[str] = [reason.reason for reason in ane_sweep.lint("x.mlpackage").summary.reasons]
"""


@pytest.mark.slow
def test_a_users_file_is_checked_strictly(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text("import ane_sweep\nane_sweep.load(3)\nnumber: int = ane_sweep.load().path\n")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--ignore-missing-imports",
        "--cache-dir",
        "cache",
        "user.py",
        "wrong.py",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    found = [line.partition(" error: ")[0] for line in done.stdout.splitlines() if " error: " in line]
    assert found == ["wrong.py:2:", "wrong.py:3:"], done.stdout
