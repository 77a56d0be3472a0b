"""One night: choose, run, compare with the good nights, tag, keep, say."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ane_sweep import command, locks, sweep
from ane_sweep.compare import history, sides, verb
from ane_sweep.compare.difference import LEVEL, figures
from ane_sweep.compare.judge import REGRESSIONS, Comparison, judge
from ane_sweep.compare.match import match
from ane_sweep.compare.steps import stands_out
from ane_sweep.errors import StoreError
from ane_sweep.nightly import retention, summary
from ane_sweep.nightly.rotation import Rotation, choose
from ane_sweep.record import Record, read_records


def night(request: Any, out: Path, args: list[str]) -> int:
    """Run tonight's cells. Exit 0 no regression, 1 regression (the first night: a cell that is not ok)."""
    settings = request.settings
    with alone(out / "nightly"), command.open_store(out) as store:
        store.sweep_tmp()
        whole = sweep.plan_for(request, store, out)
        rotation = Rotation.read(out)
        tonight, left = choose(whole, rotation, settings["budget_minutes"], store.has)
        if left:
            command.say(f"tonight {len(tonight.cells)} of {len(whole.cells)} cells; the rest comes first the next time")
        run, records, fresh = sweep.perform(tonight, settings, store, out, args)
        compared = against_good(out, records)
        regressed = bool(compared and compared.regressed)
        rotation.note(run.stamp, records, suspects(compared))
        rotation.write()
        if not regressed:
            sides.tag_good(out, run.stamp)
        code = sweep.publish(run.folder, records, fresh, settings, store)
        if compared is not None:
            code = verb.REGRESSION if regressed else verb.NO_REGRESSION
        kept = settings["nightly"]
        gone = retention.keep(out, store, keep_runs=kept["keep_runs"], cache_gb=kept["cache_gb"])
        text = summary.text(run, records, compared, left, settings["budget_minutes"], gone)
        print(f"summary: {command.shown(summary.write(out, run.stamp, text))}")
    return code


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the nightly's lock, which the kernel releases with the process. Raises StoreError while another night runs."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if not locks.attempt(descriptor, fcntl.LOCK_EX):
            holder = os.pread(descriptor, 32, 0).decode().strip()
            raise StoreError(
                f"{folder}: another nightly is still running (process {holder or 'unknown'}); this one did not start. "
                "If nights are too short, lower budget_minutes"
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def against_good(out: Path, records: list[Record]) -> Comparison | None:
    """Tonight against each cell's last good night; None where no cell of tonight has one."""
    if not sides.good_runs(out):
        return None
    good = sides.side(out, sides.GOOD)
    seen = {record.cell_key for record in records}
    before = sides.Side(good.word, [record for record in good.records if record.cell_key in seen], {})
    if not before.records:
        return None
    found = judge(match(before, sides.Side("tonight", records, {})))
    hold_against_nights(found, out)
    return found if found.pairs else None


def hold_against_nights(found: Comparison, out: Path) -> None:
    """A timing that differs from the last good night, but by no more than good nights differ among themselves, is no
    change: processes of one night know nothing of the next one. Needs five good nights of a cell."""
    keys = {pair.label: pair.b for pair in found.pairs}
    nights: dict[str, list[float]] = {}
    for stamp in reversed(sides.good_runs(out)):
        for one in read_records(out / "runs" / stamp):
            if times := list(figures(one.timings, "median_ms").values()):
                nights.setdefault(one.cell_key, []).append(history.level(times))
    for change in found.changes:
        if change.bucket in ("slower", "faster"):
            tonight = keys[change.cell]
            before = nights.get(tonight.cell_key, [])
            p = stands_out(before, history.level(list(figures(tonight.timings, "median_ms").values())))
            if p is not None and p >= LEVEL:
                change.bucket = "timing differs, but not enough"
                change.text += f"; {len(before)} good nights differ as much among themselves (p = {p:.2g})"


def suspects(compared: Comparison | None) -> list[str]:
    """Keys of the cells that regressed: measured again the next night, before all others."""
    if compared is None:
        return []
    worse = {change.cell for change in compared.changes if change.bucket in REGRESSIONS}
    return [pair.b.cell_key for pair in compared.pairs if pair.label in worse]
