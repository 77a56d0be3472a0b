"""Where people really run it: readers that go away, full disks, ASCII, closed streams, a folder that is gone, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import gpt2_checkpoint

from ane_sweep import terminal
from ane_sweep.__main__ import main
from ane_sweep.bridge import record

COMMAND = [sys.executable, "-m", "ane_sweep"]
EAGER = [
    "-m", "model=tiny-gpt2", "weights=random", "seq_len=16,4096", "latency.samples=5", "latency.warmup=1", "gate.wait_s=0",
    "runtime=torch_eager", "latency.repeats=1",
]  # fmt: skip
ASCII = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")


def start(*words: str | bytes, env: dict[str, str] | None = None, **options) -> subprocess.CompletedProcess:
    env = {**os.environ, **(env or {})}
    return subprocess.run([*COMMAND, *words], env=env, timeout=300, stdin=subprocess.DEVNULL, **options)


def nobody_reads() -> int:
    """The writing end of a pipe whose reader is gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


@pytest.fixture
def lost():
    writing = nobody_reads()
    yield writing
    os.close(writing)


def test_a_reader_that_goes_away_costs_its_output_and_not_the_exit_code(lost, tmp_path):
    done = start("devices", stdout=lost, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")
    done = start("lint", str(tmp_path / "none.mlpackage"), stdout=lost, stderr=lost)
    assert done.returncode == 2
    assert start("--help", stdout=lost, stderr=lost).returncode == 0


@needs_full
def test_what_a_verb_could_not_print_is_said():
    with open("/dev/full", "wb") as full:
        done = start("devices", "--json", stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 1 and b"standard output could not be written (No space left on device)" in done.stderr
        assert start("devices", stdout=subprocess.PIPE, stderr=full).returncode == 0


def test_closed_streams_are_nobody_elses_files(tmp_path):
    code = (
        "import os, sys; os.close(1); os.close(2); os.close(0); sys.stdout = sys.stderr = None\n"
        "from ane_sweep import terminal; terminal.protect_streams()\n"
        "made = open(sys.argv[1], 'w'); print('lost'); print('lost', file=sys.stderr); made.write(str(made.fileno()))"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "made")], timeout=60).returncode == 0
    assert int((tmp_path / "made").read_text()) > 2
    done = subprocess.run(["sh", "-c", f"{' '.join(COMMAND)} version >&- 2>&-"], timeout=60)
    assert done.returncode == 0


def test_what_is_written_arrives_whole_and_at_once_where_that_is_asked_for(tmp_path):
    """PYTHONUNBUFFERED, which the files for systemd set; and a pipe that somebody made non-blocking."""
    code = (
        "import os, sys, time; os.set_blocking(1, False)\n"
        "from ane_sweep import terminal; terminal.protect_streams(); print('now', end=''); sys.stdin.read(1)\n"
        "print('x' * 1_000_000); assert terminal.find_lost_output() is None"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.read(3) == b"now", "before anything else is asked of it"
        whole, _ = process.communicate(b"y", timeout=60)
    assert whole == b"x" * 1_000_000 + b"\n" and process.returncode == 0


def test_an_encoding_without_a_letter_gets_the_next_best(tmp_path):
    terminal.codecs.register_error("plain", terminal.plain)
    assert "17.08 ± 2.76 → …".encode("ascii", "plain") == b"17.08 +- 2.76 -> ..."
    assert "Müller 日\udcff".encode("ascii", "plain") == b"M\\xfcller \\u65e5\\udcff"
    assert json.loads(json.dumps("\udcff", ensure_ascii=False).encode("utf-8", "plain")) == "\udcff"


def test_ctrl_c_is_a_sentence_from_the_first_import_on(tmp_path):
    """A module of each phase interrupts: the first that is imported, one of a verb, one in the midst of Hydra."""
    interrupts = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n"
    for name, words in (("difflib", ["plan"]), ("psutil", ["plan", "model=tiny-gpt2"]), ("omegaconf", ["plan"])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"{name}.py").write_text(interrupts)
        done = start(
            *words, f"out={tmp_path / 'out'}", env={"PYTHONPATH": str(folder)}, capture_output=True, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where the suite runs behind nohup
        )  # fmt: skip
        assert done.returncode == 130, done.stderr
        assert done.stderr.startswith("interrupted") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "words", ["plan model=tiny-gpt2", "report", "lint x", "doctor", "-m", "report --help", "--help"]
)
def test_a_working_folder_that_is_gone_is_a_sentence(words, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    line = f"cd {folder} && rmdir {folder} && exec {' '.join(COMMAND)} {words}"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    if "--help" in words:
        assert done.returncode == 0 and "exit codes:" in done.stdout
    else:
        assert done.returncode == 2 and "the working folder is gone" in done.stderr


def test_a_folder_that_goes_while_we_run_costs_no_path(tmp_path, monkeypatch):
    from ane_sweep.terminal import format_path

    monkeypatch.chdir(tmp_path)
    assert format_path(tmp_path / "a") == "a"
    monkeypatch.setattr(os, "getcwd", lambda: (_ for _ in ()).throw(FileNotFoundError(2, "gone")))
    assert format_path(tmp_path / "a") == str(tmp_path / "a")


@pytest.mark.slow
@pytest.mark.ci
def test_a_path_that_is_no_text_is_a_word_like_any_other(tmp_path, monkeypatch, capsys):
    folder = tmp_path / os.fsdecode(b"o\xff \xc3\xbc #1 ~")
    assert main(["plan", "model=tiny-gpt2", "weights=random", f"out={folder}"]) == 0
    assert (folder / "cache").is_dir()
    checkpoint = gpt2_checkpoint(tmp_path / os.fsdecode(b"w\xff"))
    done = start("plan", "model=tiny-gpt2", f"weights={checkpoint}", f"out={folder}", capture_output=True)
    assert done.returncode == 0, done.stderr


def only_run(out: Path) -> Path:
    (folder,) = (out / "runs").iterdir()
    return folder


@pytest.mark.slow
def test_a_sweep_whose_readers_go_away_is_a_whole_sweep(tmp_path, lost):
    """`ane-sweep ... | head -1` and `2>&1 | head -3`: records, report, log and exit code are the sweep's own."""
    for name, stdout, stderr in (("out", lost, subprocess.PIPE), ("both", lost, lost)):
        out = tmp_path / name
        done = start(*EAGER, f"out={out}", stdout=stdout, stderr=stderr)
        folder = only_run(out)
        assert len(record.read_records(folder)) == 2
        assert (folder / "report.html").is_file() and (out / "mlflow.db").is_file()
        assert json.loads((folder / "run.json").read_text())["finished"]
        assert done.returncode == start(*EAGER, "resume=last", f"out={out}", capture_output=True).returncode


@pytest.mark.slow
def test_head_itself_ends_no_sweep(tmp_path):
    line = f"{{ {' '.join(COMMAND)} {' '.join(EAGER)} tracking.enabled=false out={tmp_path} 2>&1; echo $? >{tmp_path}/code; }} | head -1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=300)
    assert done.stdout.count("\n") == 1
    records = record.read_records(only_run(tmp_path))
    assert len(records) == 2 and (only_run(tmp_path) / "report.html").is_file()
    assert int((tmp_path / "code").read_text()) in (0, 1, 3)


@needs_full
@pytest.mark.slow
def test_a_full_disk_beneath_stdout_costs_a_sweep_its_table(tmp_path):
    with open("/dev/full", "wb") as full:
        done = start(
            *EAGER, "tracking.enabled=false", f"out={tmp_path}", stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (only_run(tmp_path) / "report.html").is_file() and "what was printed is lost" in done.stderr
    again = start(*EAGER, "resume=last", f"out={tmp_path}", capture_output=True)
    assert done.returncode == again.returncode


@pytest.mark.slow
def test_an_ascii_terminal_gets_the_table_in_ascii(tmp_path):
    done = start(*EAGER, "tracking.enabled=false", f"out={tmp_path}", env=ASCII, capture_output=True)
    assert b"Error" not in done.stderr and b"+-" in done.stdout and done.stdout.isascii() and done.stderr.isascii()
    assert (only_run(tmp_path) / "report.html").is_file()
    for words in (
        ["report"],
        ["report", "--json"],
        ["report", "--markdown"],
        ["plan", *EAGER],
        ["doctor"],
        ["history"],
    ):
        done = start(*words, f"out={tmp_path}", env=ASCII, capture_output=True)
        assert b"Traceback" not in done.stderr and done.stdout.isascii() and done.stdout, words


@pytest.mark.slow
def test_outputs_and_weights_whose_paths_are_no_text_leave_records(tmp_path):
    checkpoint = gpt2_checkpoint(tmp_path / os.fsdecode(b"w\xff"))
    out = tmp_path / os.fsdecode(b"o\xff")
    words = [word for word in EAGER if not word.startswith("weights=")]
    done = start(*words, f"weights={checkpoint}", f"out={out}", capture_output=True)
    assert b"Traceback" not in done.stderr, done.stderr
    found = record.read_records(only_run(out))
    assert found[0].weights.source == str(checkpoint) and (only_run(out) / "report.html").is_file()
    assert start("report", "--json", f"out={out}", capture_output=True).returncode == 0
    words = [word for word in words if word != "runtime=torch_eager"]
    done = start(
        *words, "weights=random", "runtime=reference", "tracking.enabled=false", f"out={out}", capture_output=True
    )
    assert done.returncode == 1
    newest = max((out / "runs").iterdir())
    assert "coremltools writes to no path that is not UTF-8" in str(record.read_records(newest)[0].reason)
