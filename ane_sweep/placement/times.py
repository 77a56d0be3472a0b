"""Estimated time of each op of a program, for cutting it into chunks of equal time. It is not a latency: see costs.py."""

from pathlib import Path

from ane_sweep.placement import chips, costs, legality, programs, work


def op_times(path: Path, chip: str) -> dict[str, float]:
    """Return the milliseconds of each op of the default function, by the name of the op's first output.

    They are on the ANE if that chip's takes the op, else on the CPU. A lookup costs the rows it takes. Raises
    errors.PackageError, errors.ConfigError.
    """
    row = chips.get(chip)
    sites = next(iter(programs.load(path).functions.values()))
    found = {}
    for site in sites:
        unit = "ane" if "ane" in legality.judge(site, row).supported else "cpu"
        found[site.name] = work.lookup_ms(site) if site.type == "gather" else costs.estimate_ms(site, unit)
    return found
