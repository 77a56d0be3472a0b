"""A model card of a cell or a package: Markdown with the front matter of the Hugging Face hub, and its manifest.

The Markdown is written from the manifest alone, with rounded figures; the manifest's figures are the record's in full, so
that a reader can hold one against the other.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from ane_sweep.bridge.cell import DECLARED
from ane_sweep.bridge.key import format_value
from ane_sweep.bridge.record import Record, as_typed, flat_cell, has_random_weights
from ane_sweep.bridge.runtimes import program_kind, traits
from ane_sweep.outward import escape_controls
from ane_sweep.placement.judge import Verdict
from ane_sweep.report.blocks import Grid, Para, markdown

SCHEMA = 1
AXES = ("model", "variant", "toolchain", "precision", "chunks", "cuts", "pieces", "compute_units", "seq_len", "target", "rewrite", "batch",
        "head", "cache", "weights", "seed", "score", "score_rows", "runtime")  # fmt: skip
HEADS = ["figure", "value", "unit", "kind"]
NOTE = "Predicted and estimated, not measured; the band of the estimate is from latency_low_ms to latency_high_ms."
HOST_NOTE = "By {runtime} on {host}{warning}."
OWN_CPU = ", the CPU that prepared this package: no figure of time or memory here says anything about an Apple chip"
BY_CHIP = ("ops_ane", "ops_gpu", "ops_cpu", "cost_share_ane", "latency_ms", "latency_low_ms", "latency_high_ms")
# Tasks whose hub tag is certain: https://huggingface.co/docs/hub/model-cards
PIPELINES = {"causal_lm": "text-generation", "image_classifier": "image-classification"}
HUB_LICENSES = ("apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0",
                "openrail", "unlicense")  # fmt: skip
HUB_METRICS = ("accuracy", "perplexity")


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
    """The content of a card and its manifest. `not_estimated`: chip -> why it has no estimate of latency."""

    name: str
    made: dict[str, str]
    figures: list[Figure]
    versions: dict[str, str]
    reproduce: list[str]
    base_model: str | None = None
    license: str | None = None
    pipeline_tag: str | None = None
    dataset: str | None = None
    on_own_cpu: bool = False
    warnings: list[str] = field(default_factory=list)
    not_estimated: dict[str, str] = field(default_factory=dict)
    toolchain: str = "coreml"
    schema: int = SCHEMA


def describe_cell(record: Record, command: Sequence[str], chips: Sequence[str] = ()) -> Card:
    """Return the card of one cell. `command`: the words that make this cell alone; `chips`: only these (default: all)."""
    flat = flat_cell(record)
    runs, kind = traits(record.realised.get("runtime")), program_kind(record.realised.get("runtime"))
    idle = {name for name in AXES if (DECLARED[name].honoured or "precision") not in runs.honours}
    named = [axis for axis in AXES if kind.packages or axis not in idle]
    made = {as_typed(axis): str(flat[axis]) for axis in named if flat.get(axis) is not None}
    if "chunks" in made and record.realised.get("chunks"):
        made["chunks"] = str(record.realised["chunks"])
    made |= {f"weights {name}": str(value) for name, value in asdict(record.weights).items() if value}
    made |= {name: str(record.realised[name]) for name in ("runtime", "numerics", "tools") if name in record.realised}
    made["host chip"] = str(record.host.get("chip") or record.host.get("cpu") or "not known")
    warnings = ["the weights are random: accuracy and scores mean nothing"] if has_random_weights(record) else []
    warnings += [f"{record.status.value}: {record.reason}"] if record.reason else []
    figures = [
        Figure(one.name, one.value, one.unit, one.kind, one.chip)
        for one in record.metrics
        if one.value is not None and (not one.chip or not chips or one.chip in chips)
    ]
    missing = {
        one.chip: one.not_estimated
        for one in record.placed("predicted")
        if one.chip and one.not_estimated and (not chips or one.chip in chips)
    }
    hub = record.cell.get("model_options", {}).get("hub")
    score = str(flat.get("score") or "none")
    return Card(
        str(record.cell["model"]), made, figures, {k: v for k, v in record.toolchain.items() if v},
        [f"ane-sweep {' '.join(command)}"], str(hub) if hub else None, warnings=warnings,
        pipeline_tag=PIPELINES.get(str(record.cell.get("task"))), dataset=score if score != "none" else None,
        on_own_cpu=not runs.coreml, not_estimated=missing, toolchain=kind.toolchain,
    )  # fmt: skip


def list_words(record: Record, command: Sequence[str], axes: Sequence[str]) -> list[str]:
    """Return the words of a sweep of this cell alone, from those of its whole sweep, whose varied axes are `axes`.

    A stored sweep (+sweep=NAME) is left out; each axis that the cell changes is named instead.
    """
    flat = {as_typed(name): value for name, value in flat_cell(record).items()}
    is_kept = any(word.startswith("+sweep=") for word in command)
    others = [word for word in command if not word.startswith(("-m", "--multirun", "+sweep="))]
    given = [word.partition("=")[0] for word in others]
    changed = [
        name for name, axis in DECLARED.items() if is_kept and flat.get(name) != axis.plain and name not in given
    ]
    named = dict.fromkeys(["model", *map(as_typed, axes), *changed])
    own = {name: f"{name}={format_value(flat[name])}" for name in named if flat.get(name) is not None}
    return [*own.values(), *(word for word, name in zip(others, given) if name not in own)]


def describe_package(
    name: str, size: int, metadata: dict[str, str], verdicts: Sequence[Verdict], stated_license: str = ""
) -> Card:
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
    versions = {"coremltools": told.pop("version")} if "version" in told else {}
    framework, equals, version = told.get("source", "").partition("==")
    if equals:
        versions[framework] = version
        del told["source"]
    missing = {one.chip: one.prediction.not_estimated for one in verdicts if one.prediction.not_estimated}
    again = [f"ane-sweep card {name} --chip {','.join(one.chip for one in verdicts)}"]
    warnings = ["no accuracy is recorded: no sweep made this package"]
    known = stated_license.strip().lower() if stated_license.strip().lower() in HUB_LICENSES else None
    warnings += [f"the package states as its license: {stated_license}"] if stated_license and not known else []
    return Card(name, told, figures, versions, again, warnings=warnings, license=known, not_estimated=missing)


def to_markdown(card: Card) -> str:
    """Return the card as Markdown with YAML front matter (each value as JSON, which is YAML)."""
    front = {key: value for key, value in _describe_front(card).items() if value}
    head = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())
    chips = list(dict.fromkeys([*(one.chip for one in card.figures if one.chip), *card.not_estimated]))
    rows = [_row(one) for one in card.figures if not one.chip]
    host = {
        "runtime": card.made.get("runtime", "no runtime"),
        "host": card.made.get("host chip", "the host that wrote this"),
    }
    measured = HOST_NOTE.format(**host, warning=OWN_CPU if card.on_own_cpu else "")
    parts = [
        f"---\n{head}---\n\n# {_clean(card.name)}\n\n",
        *(f"> {_clean(warning)}\n\n" for warning in card.warnings),
        "## How it was made\n\n", _table(["what", "value"], card.made),
        *(["## On Apple chips\n\n", f"{NOTE}\n\n", *(_chip_table(card, chip) for chip in chips)] if chips else []),
        "## Measured\n\n", f"{_clean(measured)}\n\n", markdown(Grid(HEADS, rows, [False, True, False, False])),
        "## Versions\n\n", _table(["package", "version"], card.versions),
        "## Reproduce\n\n", *(f"    {_clean(line)}\n" for line in card.reproduce),
    ]  # fmt: skip
    return "".join(parts)


def _describe_front(card: Card) -> dict[str, object]:
    """Return the hub's metadata: https://huggingface.co/docs/hub/model-cards. Unknown values are None."""
    scores = [
        {"type": one.name, "value": one.value}
        for one in card.figures
        if one.name in HUB_METRICS and one.kind == "measured"
    ]
    task = {"type": card.pipeline_tag}
    result = {"task": task, "dataset": {"type": card.dataset, "name": card.dataset}, "metrics": scores}
    has_index = scores and card.pipeline_tag and card.dataset
    return {
        "library_name": card.toolchain, "tags": [card.toolchain, "apple-neural-engine", "ane-sweep"], "license": card.license,
        "pipeline_tag": card.pipeline_tag, "base_model": card.base_model,
        "model-index": [{"name": card.name, "results": [result]}] if has_index else None,
    }  # fmt: skip


def _chip_table(card: Card, chip: str) -> str:
    """Return a chip's placement and estimate with its band, then its other figures, as one table."""
    found = {one.name: one for one in card.figures if one.chip == chip}
    names = [*(name for name in BY_CHIP if name in found), *(name for name in found if name not in BY_CHIP)]
    table = markdown(Grid(HEADS, [_row(found[name]) for name in names], [False, True, False, False])) if names else ""
    why = card.not_estimated.get(chip, "").removeprefix(f"{chip}: ")
    return f"### {_clean(chip)}\n\n{table}" + (markdown(Para(f"Not estimated: {_clean(why)}.")) if why else "")


def _row(one: Figure) -> list[str]:
    """Return a figure's row: a time with three significant digits, and named as the host's if it is of no chip."""
    is_time = one.name.endswith(("_ms", "_s")) and not one.name.endswith("_per_s")
    shown = float(f"{one.value:.3g}") if is_time else one.value
    name = f"host {one.name}" if is_time and not one.chip else one.name
    return [name, f"{shown:.12g}", "" if one.unit == "1" else one.unit, one.kind]


def _table(heads: list[str], rows: dict[str, str]) -> str:
    return markdown(Grid(heads, [list(row) for row in rows.items()], [False, False])) if rows else "Not recorded.\n\n"


def _clean(text: str) -> str:
    return escape_controls(text).replace("\n", " ")
