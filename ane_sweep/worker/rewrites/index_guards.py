"""index_guards: a compare, an add and a select before each gather, as coremltools and other people's programs have them."""

from ane_sweep.bridge.rewrites import Rewrite

REWRITE = Rewrite(
    order=30,
    help="lookups: indices taken as they are, or guarded against negative ones as converters of 2023 left them",
    plain="none",
    choices=("none", "negative"),
    changes="program",
    models="texts",
)
GUARDS = "common::guard_negative_gather_indices"


def change_left_out(names: set[str], value: str) -> None:
    names.discard(GUARDS)
