"""One night: choose cells, run them, compare them with the good nights, tag the run, delete old runs, write a summary."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ane_sweep import engine, terminal
from ane_sweep.bridge.record import Record, Status
from ane_sweep.compare import history, sides
from ane_sweep.compare.judge import IMPROVEMENTS, REGRESSIONS, Comparison, judge
from ane_sweep.compare.match import match
from ane_sweep.compare.steps import stands_out
from ane_sweep.errors import StoreError
from ane_sweep.nightly import summary
from ane_sweep.nightly.rotation import Rotation, choose
from ane_sweep.nightly.summary import Night
from ane_sweep.planner.matrix import Request
from ane_sweep.planner.settle import plan_for
from ane_sweep.results.difference import LEVEL
from ane_sweep.store import cache, locks, runs
from ane_sweep.terminal import IN_DOUBT, NOT_ALL_OK, OK


def night(request: Request, out: Path, args: list[str]) -> int:
    """Run tonight's cells and return the exit code: 0 no regression, 1 a regression or a failed cell, 3 no test was
    possible; without a good night so far, a sweep's code.
    """
    settings = request.settings
    with hold_lock(out / "nightly"), cache.open_store(out) as store:
        store.sweep_tmp()
        whole = plan_for(request, store, out)
        rotation = Rotation.read(out)
        tonight, left = choose(whole, rotation, settings.budget_minutes, store.has)
        if left:
            terminal.say(f"tonight {len(tonight.cells)} of {len(whole.cells)} cells; the rest comes first next time")
        run, records, fresh = engine.perform(tonight, settings, store, out, args)
        now = Night(run, records, left, settings.budget_minutes)
        compare(now, out)
        rotation.note(run.stamp, records, [*(rotation.again if now.doubt else ()), *list_suspects(now)])
        rotation.write()
        measured = {record.cell_key for record in records if record.status is not Status.SKIPPED}
        bad = [cell for cell in whole.cells if cell.key in rotation.again and cell.key not in measured]
        now.missed = [cell.label(whole.axes or ["model"]) for cell in bad]
        now.untested = list_untested(now)
        fit = [record for record in records if sides.is_level(record) and record.cell_key not in now.untested]
        if fit and not now.doubt and not now.regressed:
            sides.tag_good(out, run.stamp, now.untested)
        engine.publish(run, records, fresh, settings, store)
        kept = settings.nightly
        now.gone = delete_old(out, store, keep_runs=kept.keep_runs, cache_gb=kept.cache_gb)
        print(f"summary: {terminal.format_path(summary.write(out, run.stamp, summary.text(now)))}")
    return exit_code(now, engine.exit_code(records))


def exit_code(now: Night, of_the_sweep: int) -> int:
    """Return a night's exit code. A cell that failed or became worse keeps every later night bad until it recovers,
    also nights that do not reach it.
    """
    if now.regressed or now.failing or now.missed:
        return NOT_ALL_OK
    if now.doubt or (now.compared and not now.compared.tested):
        return IN_DOUBT
    return OK if now.compared else of_the_sweep


@contextlib.contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Hold the nightly's lock, which the kernel releases with the process. Raises StoreError while another night runs."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = locks.tried(folder / "lock")
    if lock is None:
        holder = (folder / "lock").read_text().strip()
        raise StoreError(
            f"{folder}: another nightly is still running (process {holder or 'unknown'}); this one did not start. "
            "If nights are too short, lower budget_minutes"
        )
    try:
        os.ftruncate(lock.descriptor, 0)
        os.pwrite(lock.descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        lock.close()


def compare(now: Night, out: Path) -> None:
    """Compare tonight with the good nights. An error becomes a warning in the summary: tonight's figures took hours."""
    try:
        now.compared = against_good(out, now.run.folder, now.records)
    except Exception as error:
        now.doubt = str(error) or type(error).__name__
        terminal.say(f"doubt: not compared with the good nights: {now.doubt}")


def against_good(out: Path, folder: Path, records: list[Record]) -> Comparison | None:
    """Return the comparison with each cell's last good night, or None if none of tonight's cells has one. A night that
    was interrupted during its report may be tagged good already, and is not compared with itself.
    """
    nights = sides.good_nights(out, without=[folder.resolve()])
    tonight = {record.cell_key for record in records}
    before = [record for record in sides.newest(nights) if record.cell_key in tonight]
    if not before:
        return None
    found = judge(match(sides.Side(sides.GOOD, before), sides.Side("tonight", records)))
    hold_against_nights(found, nights)
    return found if found.pairs else None


def hold_against_nights(found: Comparison, nights: list[list[Record]]) -> None:
    """Move timing changes that are no larger than the differences among good nights to a separate bucket, which counts
    as no change, because the processes of one night do not show the spread between nights. This needs five good nights
    of a cell.
    """
    tonight = {pair.label: pair.b for pair in found.pairs}
    for change in found.changes:
        if change.figure is None or change.bucket not in (*REGRESSIONS, *IMPROVEMENTS):
            continue
        now = tonight[change.cell]
        good = (one for night in nights for one in night if one.cell_key == now.cell_key and sides.is_testable(one))
        before = [level for one in good if (level := history.typical(one, change.figure)) is not None]
        p = stands_out(before, history.typical(now, change.figure) or 0.0)
        if p is not None and p >= LEVEL:
            change.bucket = "timing differs, but not enough"
            change.text += f"; {len(before)} good nights differ as much among themselves (p = {p:.2g})"


def list_untested(now: Night) -> list[str]:
    """Return the keys of the cells for which tonight sets no baseline: they have one, and could not be tested against
    it. If that baseline is itself too small for a test and tonight's timing is not, tonight replaces it.
    """
    found = now.compared
    pairs = [pair for pair in found.pairs if pair.label in found.untested] if found else []
    return [
        pair.b.cell_key
        for pair in pairs
        if (pair.a.timings or pair.b.timings) and (sides.is_testable(pair.a) or not sides.is_testable(pair.b))
    ]


def list_suspects(now: Night) -> list[str]:
    """Return the keys of the cells that regressed or failed: the next night measures them first."""
    found = now.compared
    worse = {change.cell for change in found.changes if change.bucket in REGRESSIONS} if found else set()
    regressed = [pair.b.cell_key for pair in found.pairs if pair.label in worse] if found else []
    return [*regressed, *(record.cell_key for record in now.failing)]


def delete_old(out: Path, store: cache.Store, *, keep_runs: int, cache_gb: float) -> list[str]:
    """Delete runs and artifacts beyond the limits and return the names of deleted runs. A run stays if it is
    unfinished, was not made by a nightly, or has a record that `good` uses. While another sweep uses the cache, the
    cache stays, with a warning.
    """
    needed = {one.sweep for one in sides.newest(sides.good_nights(out))}
    finished = [run for run in runs.list_runs(out) if run.finished and run.info.get("nightly")]
    gone = [run.stamp for run in finished[keep_runs:] if run.stamp not in needed and runs.delete(run)]
    try:
        store.prune(max_bytes=int(cache_gb * 1e9))
    except StoreError as error:
        terminal.say(f"doubt: {error}")
    return gone
