"""Size limits of programs for the Neural Engine of a chip, and the number of chunks that a model will need.

    a weight file     2 GiB: Core ML's own log, "exceeds the maximum (2147483648 bytes)" (coremltools#2593)
    iPhone and iPad   1 GB a program (coremltools' mlmodel-utilities and ml-stable-diffusion)
    mapped at once    0xE0000000 bytes on M1 and A14 (vm-size, more-ane-transformers notes of April 2023; chips.json)

The margin of a tenth: programs of 1.9 GB ran on the ANE and of 2.3 GB did not (ane-book journal), four of 820 MB were
mapped together on an M1 Max and a fifth was not (the same notes), 950 MB is what ANEMLL found to hold on iPhones.
Standard library only, as the planner uses it too.
"""

from dataclasses import dataclass

from ane_sweep.errors import ConfigError
from ane_sweep.placement import chips

MAX_WEIGHT_FILE_BYTES = 2_147_483_648
MAX_IOS_BYTES = 1_000_000_000
MARGIN = 0.1
UNKNOWN_HOST = "m1"  # its limits hold if the host is no known Apple chip: the tightest of the Macs


@dataclass(frozen=True)
class Limits:
    """Limits on bytes of weights, after the margin: of one program, and of all programs loaded at once (None: unknown)."""

    chip: str
    program_bytes: int
    mapped_bytes: int | None


def limits_for(chip: str) -> Limits:
    """Return the limits of a chip. Raises ConfigError for an unknown one."""
    row = chips.get(chip)
    program = MAX_IOS_BYTES if row.ios else MAX_WEIGHT_FILE_BYTES
    mapped = row.mapped_limit_bytes
    return Limits(row.chip, int(program * (1 - MARGIN)), None if mapped is None else int(mapped * (1 - MARGIN)))


def chip_of(brand: str | None) -> str:
    """Return the chip whose limits hold on a host of a brand such as `Apple M4 Pro`; m1 for an unknown brand."""
    try:
        return chips.get((brand or "").removeprefix("Apple ")).chip
    except ConfigError:
        return UNKNOWN_HOST
