"""The metric `plan_agreement`: how often a prediction and Core ML's own plan choose the same unit."""

from collections.abc import Mapping, Sequence
from typing import Any


def plan_agreement(predicted: Sequence[Mapping[str, Any]], planned: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the share of ops with the same unit. Rows are in file order, chunk by chunk, each with `op_type` and `preferred`.

    Return None if the two do not hold the same ops (the compiler may have rewritten the program): a share of unlike
    things would mean nothing.
    """
    if not predicted or [row["op_type"] for row in predicted] != [row["op_type"] for row in planned]:
        return None
    same = sum(one["preferred"] == other["preferred"] for one, other in zip(predicted, planned))
    return same / len(predicted)
