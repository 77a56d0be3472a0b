"""Run the probes as one sweep with this machine's Core ML, store the rows, and bundle the run for sending."""

from dataclasses import asdict, dataclass
from pathlib import Path

from ane_sweep import engine
from ane_sweep.bridge.record import read_records
from ane_sweep.bundles import bundle
from ane_sweep.calibration import figures, probes
from ane_sweep.errors import ConfigError
from ane_sweep.machine import apple, calibrated, host, stand_in
from ane_sweep.placement import chips
from ane_sweep.planner import config
from ane_sweep.store import runs


@dataclass(frozen=True)
class Calibration:
    """A finished calibration; `kept` is the file of stored rows, or None if they were only shown."""

    chip: str
    folder: Path
    found: figures.CalibrationRows
    kept: Path | None
    bundle: Path
    code: int

    def to_dict(self) -> dict[str, object]:
        return {
            "chip": self.chip, "folder": str(self.folder), "rows": [asdict(row) for row in self.found.rows],
            "missing": self.found.missing, "kept": None if self.kept is None else str(self.kept), "bundle": str(self.bundle),
        }  # fmt: skip


def find_chip() -> str | None:
    """Return this host's chip as the chip table spells it, or None if the host has no Core ML."""
    return None if apple.no_coreml() else host.chip_name(host.chip())


def words_for_host(tiny: bool, more: list[str]) -> list[str]:
    """Return the words of the sweep on this host; without a known chip, predictions are for the default chips."""
    mine = find_chip()
    return probes.sweep_words(mine if mine in chips.published() else None, tiny, more)


def calibrate(out: Path, tiny: bool, more: list[str]) -> Calibration:
    """Run the probes and store their rows. Raises ConfigError without Core ML, or if `more` changes the cells."""
    if reason := apple.no_coreml():
        raise ConfigError(
            f"calibrate run measures this machine's Core ML, which {reason}; `ane-sweep calibrate` says what it would measure"
        )
    words = words_for_host(tiny, more)
    request = config.load(words)
    if len(request.cells) != len(probes.list_probes()):
        raise ConfigError(
            f"these words make {len(request.cells)} cells of {len(probes.list_probes())} probes: leave the axes as they are"
        )
    folder, records = engine.sweep(request, out, words)
    mine = find_chip() or "unknown"
    figures_found = figures.derive_rows(records, mine, calibrated.source())
    kept = calibrated.keep(figures_found.rows) if figures_found.rows and (not tiny or stand_in.active()) else None
    target = out / f"calibration-{mine}-{folder.name}.zip"
    bundle.export(folder, target, out)
    return Calibration(mine, folder, figures_found, kept, target, engine.exit_code(records))


def read_run(out: Path, name: str) -> figures.CalibrationRows:
    """Return the figures of an earlier calibration, made here or imported. Raises RunNotFound, ConfigError."""
    run = runs.find_run(out, name)
    records = read_records(run.folder)
    if len(records) != len(probes.list_probes()):
        raise ConfigError(
            f"{run.stamp} has {len(records)} cells, a calibration {len(probes.list_probes())}: it is no calibration"
        )
    chip = host.chip_name(next((str(one.host["chip"]) for one in records if one.host.get("chip")), None))
    return figures.derive_rows(records, chip, f"run {run.stamp}")
