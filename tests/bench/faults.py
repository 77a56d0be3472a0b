"""A fleet of four workers on this machine, hurt in turn: kill -9 of each role, sleep, a cut, a clock, a damaged artifact, two sweeps"""

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ane_sweep.bridge.record import Record
from tests.bench import Row, _shelf

REPEATS = 2
WORDS = ("runtime=reference", "machine=m1,m4", "chunks=1,2", f"latency.repeats={REPEATS}")
CELLS = 4


def run() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="ane-sweep-faults-") as folder, _shelf.Shelf(Path(folder)) as shelf:
        for name, chip in _shelf.WORKERS.items():
            ahead: dict[str, Any] = _shelf.clock_ahead(Path(folder) / "clock", 3600) if name == "m4-b" else {}
            shelf.worker(name, chip, **ahead)
        shelf.ready(*_shelf.WORKERS)
        return [_row(what, hurt, shelf, number) for number, (what, hurt) in enumerate(FAULTS.items())]


def _row(what: str, hurt: Callable[[_shelf.Shelf, str], list[Record]], shelf: _shelf.Shelf, number: int) -> Row:
    began = time.monotonic()
    records = hurt(shelf, f"out-{number}")
    found = _shelf.truth(records, shelf.chips, REPEATS)
    told = [record for record in records if record.reason and record.status.value not in ("ok", "degraded")]
    lost, twice = found["cells"] - found["done"] - len(told), found["cells"] - found["different"]
    true = found["done"] if found["done"] == found["right machine"] == found["timed once"] else -1
    shelf.ready(*_shelf.WORKERS)
    return Row(
        what,
        f"{found['cells']} cells, {true} true, {len(told)} with the reason",
        f"{lost} lost, {twice} twice",
        f"{time.monotonic() - began:.0f} s",
        "0 lost, 0 twice",
    )


def _none(shelf: _shelf.Shelf, out: str) -> list[Record]:
    """One of the four has a clock that is an hour ahead, in this row and in all others."""
    return shelf.sweep(*WORDS, out=out).end()


def _child(shelf: _shelf.Shelf, out: str) -> list[Record]:
    sweep = shelf.sweep(*WORDS, out=out)
    _shelf.kill(shelf.caught("latency"))
    return sweep.end()


def _worker(shelf: _shelf.Shelf, out: str) -> list[Record]:
    sweep = shelf.sweep(*WORDS, out=out)
    _shelf.kill(_shelf.worker_of(shelf.caught("latency")))
    return sweep.end()


def _command(shelf: _shelf.Shelf, out: str) -> list[Record]:
    sweep = shelf.sweep(*WORDS, out=out)
    command = _shelf.worker_of(shelf.caught("latency")).parent()
    assert command is not None
    _shelf.kill(command)
    records = sweep.end()
    (name,) = (name for name, process in shelf.processes.items() if process.pid == command.pid)
    shelf.worker(name, shelf.chips[name])
    return records


def _scheduler(shelf: _shelf.Shelf, out: str) -> list[Record]:
    sweep = shelf.sweep(*WORDS, out=out, wait_s=60)
    shelf.caught("latency")
    import psutil

    for process in psutil.Process(shelf.processes["scheduler"].pid).children(recursive=True):
        _shelf.kill(process)
    return sweep.end()


def _parent(shelf: _shelf.Shelf, out: str) -> list[Record]:
    sweep = shelf.sweep(*WORDS, out=out)
    shelf.caught("latency")
    sweep.process.kill()
    sweep.process.wait()
    return shelf.again(sweep).end()


def _asleep(shelf: _shelf.Shelf, out: str) -> list[Record]:
    """A lid is closed: all of a worker's machine stands still while it times, and goes on when the sweep has ended."""
    import psutil

    sweep = shelf.sweep(*WORDS, out=out)
    command = _shelf.worker_of(shelf.caught("latency")).parent()
    assert command is not None
    machine = [command, *command.children(recursive=True)]
    for process in machine:
        process.suspend()
    try:
        return sweep.end()
    finally:
        for process in machine:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()


def _cut(shelf: _shelf.Shelf, out: str) -> list[Record]:
    with _shelf.proxy(shelf.port) as (port, cut):
        sweep = shelf.sweep(*WORDS, out=out, address=f"tls://127.0.0.1:{port}")
        shelf.caught("latency")
        cut()
        return sweep.end()


def _damaged(shelf: _shelf.Shelf, out: str) -> list[Record]:
    """A byte of every file in the store is another, and this sweep has nothing of its own yet."""
    for path in (shelf.folder / "store" / "cas").glob("*/*"):
        if not (content := path.read_bytes()):
            continue
        path.chmod(0o644)
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    return shelf.sweep(*WORDS, out=out).end()


def _two(shelf: _shelf.Shelf, out: str) -> list[Record]:
    first, second = shelf.sweep(*WORDS, out=out), shelf.sweep(*WORDS, "seed=1", out=f"{out}-other")
    with contextlib.ExitStack() as ends:
        ends.callback(second.process.wait)
        return [*first.end(), *second.end()]


FAULTS: dict[str, Callable[[_shelf.Shelf, str], list[Record]]] = {
    "nothing but a worker's clock, an hour ahead": _none,
    "kill -9 of a child that times": _child,
    "kill -9 of a worker": _worker,
    "kill -9 of the command `fleet worker`": _command,
    "kill -9 of the scheduler": _scheduler,
    "kill -9 of the sweep, then the same command": _parent,
    "a worker's machine sleeps while it times": _asleep,
    "every connection of the sweep cut": _cut,
    "a byte of every artifact in the store changed": _damaged,
    "two sweeps at once": _two,
}
