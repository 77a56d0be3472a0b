"""A model card of a cell or a package: Markdown with the front matter of the Hugging Face hub, and its manifest.

The Markdown is written from the manifest alone, and the manifest's figures are the record's, so that a reader can hold one
against the other.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from ane_sweep.bridge.record import Record, as_typed, flat_cell, has_random_weights
from ane_sweep.outward import escape_controls
from ane_sweep.placement.judge import Verdict
from ane_sweep.report.blocks import Grid, markdown
from ane_sweep.results.headline import is_check

SCHEMA = 1
AXES = ("model", "variant", "precision", "chunks", "compute_units", "seq_len", "target", "rewrite", "batch", "head",
        "cache", "weights", "seed", "score", "score_rows", "runtime")  # fmt: skip
HEADS = ["figure", "value", "unit", "kind", "chip"]
NOTE = (
    "measured: on the host and by the runtime named below; predicted and estimated: for the chip named, not measured there. The band "
    "of a latency is from latency_low_ms to latency_high_ms."
)


@dataclass(frozen=True)
class Figure:
    """One figure of a card, with the unit, kind and chip of its record."""

    name: str
    value: float
    unit: str
    kind: str
    chip: str | None = None


@dataclass(frozen=True)
class Card:
    """The content of a card and its manifest."""

    name: str
    made: dict[str, str]
    figures: list[Figure]
    versions: dict[str, str]
    reproduce: list[str]
    base_model: str | None = None
    warnings: list[str] = field(default_factory=list)
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, object]:
        """Return the manifest as JSON values."""
        return asdict(self)


def describe_cell(record: Record, command: Sequence[str]) -> Card:
    """Return the card of one cell. `command`: the words of the sweep that made it."""
    flat = flat_cell(record)
    made = {as_typed(axis): str(flat[axis]) for axis in AXES if flat.get(axis) is not None}
    made |= {f"weights {name}": str(value) for name, value in asdict(record.weights).items() if value}
    made |= {name: str(record.realised[name]) for name in ("runtime", "numerics") if name in record.realised}
    made["host chip"] = str(record.host.get("chip") or record.host.get("cpu") or "not known")
    warnings = ["the weights are random: accuracy and scores mean nothing"] if has_random_weights(record) else []
    warnings += (
        ["latencies of kind measured are of this host's CPU, not of an Apple device"] if is_check(record) else []
    )
    warnings += [f"{record.status.value}: {record.reason}"] if record.reason else []
    figures = [
        Figure(one.name, one.value, one.unit, one.kind, one.chip) for one in record.metrics if one.value is not None
    ]
    hub = record.cell.get("model_options", {}).get("hub")
    return Card(
        str(record.cell["model"]), made, figures, {k: v for k, v in record.toolchain.items() if v},
        [f"ane-sweep {' '.join(command)}"], str(hub) if hub else None, warnings,
    )  # fmt: skip


def describe_package(name: str, size: int, metadata: dict[str, str], verdicts: Sequence[Verdict]) -> Card:
    """Return the card of a package that no sweep made: its size, its placement and estimate on each chip."""
    figures = [Figure("package_bytes", size, "bytes", "measured")]
    for one in verdicts:
        summary, estimate = one.summary, one.prediction.estimate
        counts = {f"ops_{unit}": value for unit, value in vars(summary.ops).items()}
        counts["cost_share_ane"] = summary.cost_share.ane
        figures += [Figure(key, value, "1", "predicted", one.chip) for key, value in counts.items()]
        if estimate is not None:
            band = {"latency_ms": estimate.ms, "latency_low_ms": estimate.low_ms, "latency_high_ms": estimate.high_ms}
            figures += [Figure(key, value, "ms", "estimated", one.chip) for key, value in band.items()]
    prefix = "com.github.apple.coremltools."
    told = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    versions: dict[str, str] = {key: told.pop(key) for key in ("version", "source") if key in told}
    chips = ",".join(one.chip for one in verdicts)
    again = [f"ane-sweep card {name} --chip {chips}"]
    return Card(name, told, figures, versions, again, warnings=["no accuracy is recorded: no sweep made this package"])


def to_markdown(card: Card) -> str:
    """Return the card as Markdown with YAML front matter (each value as JSON, which is YAML)."""
    front: dict[str, object] = {"library_name": "coreml", "tags": ["coreml", "apple-neural-engine", "ane-sweep"]}
    if card.base_model:
        front["base_model"] = card.base_model
    head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())
    rows = [[one.name, f"{one.value:.12g}", one.unit, one.kind, one.chip or "-"] for one in card.figures]
    parts = [
        f"---\n{head}---\n\n# {_clean(card.name)}\n\n",
        *(f"> {_clean(warning)}\n\n" for warning in card.warnings),
        "## How it was made\n\n", _table(["what", "value"], card.made),
        "## Figures\n\n", f"{NOTE}\n\n", markdown(Grid(HEADS, rows, [False, True, False, False, False])),
        "## Versions\n\n", _table(["package", "version"], card.versions),
        "## Reproduce\n\n", *(f"    {_clean(line)}\n" for line in card.reproduce),
    ]  # fmt: skip
    return "".join(parts)


def _table(heads: list[str], rows: dict[str, str]) -> str:
    return markdown(Grid(heads, [list(row) for row in rows.items()], [False, False])) if rows else "Not recorded.\n\n"


def _clean(text: str) -> str:
    return escape_controls(text).replace("\n", " ")
