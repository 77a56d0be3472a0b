"""The probes as one sweep of this machine's Core ML; what came out is kept, and bundled to be sent in."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ane_sweep import engine
from ane_sweep.bridge.record import Record, read_records
from ane_sweep.bundles import bundle
from ane_sweep.calibration import figures, probes
from ane_sweep.errors import ConfigError
from ane_sweep.machine import apple, host, stand_in
from ane_sweep.placement import chips, here
from ane_sweep.store import runs


@dataclass(frozen=True)
class Calibrated:
    """`kept` is None where the rows were only shown."""

    chip: str
    folder: Path
    found: figures.Found
    kept: Path | None
    bundle: Path
    code: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "chip": self.chip, "folder": str(self.folder), "rows": [asdict(row) for row in self.found.rows],
            "missing": self.found.missing, "kept": None if self.kept is None else str(self.kept), "bundle": str(self.bundle),
        }  # fmt: skip


def chip() -> str | None:
    """This host's, as the chip table spells it; None where it has no Core ML."""
    return None if apple.no_coreml() else host.chip_name(host.chip())


def words(tiny: bool, more: list[str]) -> list[str]:
    """The sweep on this host; off a Mac what it would be on one, predicted for the chips that are usual."""
    mine = chip()
    return probes.words(mine if mine in chips.published() else None, tiny, more)


def calibrate(out: Path, tiny: bool, more: list[str]) -> Calibrated:
    """Raises ConfigError where this host has no Core ML, or the words changed which cells there are."""
    if reason := apple.no_coreml():
        raise ConfigError(
            f"calibrate run measures this machine's Core ML, which {reason}; `ane-sweep calibrate` says what it would measure"
        )
    asked = words(tiny, more)
    request = probes.request(asked)
    if len(request.cells) != len(probes.listed()):
        raise ConfigError(
            f"these words make {len(request.cells)} cells of {len(probes.listed())} probes: leave the axes as they are"
        )
    folder, records = engine.sweep(request, out, asked)
    mine = chip() or "unknown"
    found = figures.found(records, mine, here.source())
    kept = here.keep(found.rows) if found.rows and (not tiny or stand_in.active()) else None
    target = out / f"calibration-{mine}-{folder.name}.zip"
    bundle.export(folder, target, out)
    return Calibrated(mine, folder, found, kept, target, engine.exit_code(records))


def of_run(out: Path, name: str) -> figures.Found:
    """The figures of a calibration that is among the runs, one's own or imported. Raises RunNotFound, ConfigError."""
    run = runs.find_run(out, name)
    records = read_records(run.folder)
    if len(records) != len(probes.listed()):
        raise ConfigError(f"{run.stamp} has {len(records)} cells, a calibration {len(probes.listed())}: it is none")
    return figures.found(records, _chip_of(records), f"run {run.stamp}")


def _chip_of(records: list[Record]) -> str:
    return host.chip_name(next((str(one.host["chip"]) for one in records if one.host.get("chip")), None))
