"""How far a prediction and Core ML's own plan say the same: the metric `plan_agreement`."""

from collections.abc import Mapping, Sequence
from typing import Any


def plan_agreement(predicted: Sequence[Mapping[str, Any]], planned: Sequence[Mapping[str, Any]]) -> float | None:
    """Share of ops with the same unit. Rows in file order, chunk by chunk, each with `op_type` and `preferred`.

    None where the two do not hold the same ops (a compiled program may have been rewritten): a share of unlike things
    would be no figure.
    """
    if not predicted or [row["op_type"] for row in predicted] != [row["op_type"] for row in planned]:
        return None
    same = sum(one["preferred"] == other["preferred"] for one, other in zip(predicted, planned))
    return same / len(predicted)
