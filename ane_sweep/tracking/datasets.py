"""The inputs that a cell was scored on, as MLflow's dataset: name, digest, profile. Plain Python, no tracker."""

import json
from dataclasses import dataclass

from ane_sweep.bridge.record import Record

CONTEXT = "scoring"
SOURCE_TYPE = "code"  # they are made by the sweep's reference, of texts in the package or of a seed


@dataclass(frozen=True)
class Dataset:
    """The fields of mlflow.entities.Dataset; source, schema and profile are JSON."""

    name: str
    digest: str
    source: str
    profile: str
    source_type: str = SOURCE_TYPE


def scored_inputs(record: Record) -> Dataset | None:
    """None where nothing was scored, or by a release that did not say on what."""
    said = record.realised
    if not (digest := said.get("texts_digest")):
        return None
    kind, count = said.get("texts"), said.get("texts_count")
    source = {"model": record.cell.get("model"), "seed": record.cell.get("seed"), "texts": kind}
    if kind is None:  # pictures and sounds are made up, and named
        profile = {"num_rows": count, "inputs": said.get("inputs")}
        return Dataset("made-up inputs", digest, json.dumps(source), json.dumps(profile))
    profile = {"num_rows": count, "tokens_per_row": record.cell.get("seq_len")}
    return Dataset(f"{kind} texts", digest, json.dumps(source), json.dumps(profile))
