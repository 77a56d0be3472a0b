"""The registry of metrics: how each one is named, shown, tracked, searched by and compared, one row a metric.

To add a metric, let a stage return it (`Metric(name, value, unit)`) and add a row here. A metric without a row is still kept
in the records, is a column of `Sweep.frame()`, is tracked as `rest.<kind>.<name>`, and can be named as KIND.NAME in `best`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, Protocol

from ane_sweep.placement.types import Kind

Place = Literal["table", "report", "mlflow", "best", "compare"]
EVERYWHERE: tuple[Place, ...] = ("table", "report", "mlflow", "best", "compare")


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """How one metric is named, shown and compared.

    name            its name in records, MLflow and `frame`
    unit            of the recorded value; "1": a plain number
    better          1 if higher is better, -1 if lower is, 0 if neither
    shows           the places that show it. table: a column of the table of cells; report: a column of the best cells,
                    and a limit to set there; mlflow: outside `rest.`; best: an objective of `best`; compare: its
                    changes are reported
    label           short words for sentences; default: the name with spaces
    heading         heading of its columns; default: the label and the shown unit
    word            its name in `best`, in the shown unit; default: the name
    scale           (shown unit, recorded value of one such unit) if it is shown in another unit
    digits          decimals in tables; None: three significant figures
    score           the report ranks cells by it too, in addition to RANKED, if all cells of a model have it
    torch           the metric of fp32 torch that is shown in parentheses behind the value
    narrow          shorter heading for a narrow terminal
    drop_order      rank in the order in which a narrow terminal drops columns, from 1; 0: never dropped
    varying         the table shows it only if an axis whose name begins with this varies
    fallback        metric to read if this one was not recorded: for a program with one output, the worst output is that
                    output
    ratio           (numerator, denominator): the metrics that it is computed from, if it is not recorded itself
    over_processes  how the figures of several timing processes are combined
    least_change    the least change that `compare` reports, in the recorded unit
    least_share     the least change that `compare` reports, as a share of the earlier value
    ceiling         values above it count as equal to it in `compare`
    worse, improved buckets of `compare` for a change to the worse or the better
    """

    name: str
    unit: str = "1"
    kind: Kind = "measured"
    better: Literal[-1, 0, 1] = 0
    shows: tuple[Place, ...] = ()
    label: str = ""
    heading: str = ""
    word: str = ""
    scale: tuple[str, float] | None = None
    digits: int | None = 3
    score: bool = False
    torch: str | None = None
    narrow: str = ""
    drop_order: int = 0
    varying: str = ""
    fallback: str | None = None
    ratio: tuple[str, str] | None = None
    over_processes: Literal["median", "largest"] = "median"
    least_change: float = 0.0
    least_share: float = 0.0
    ceiling: float = inf
    worse: str = "less accurate"
    improved: str = "more accurate"

    @property
    def short(self) -> str:
        """Return the metric's words in a sentence: `package`, `top1 agreement`."""
        return self.label or self.name.replace("_", " ")

    @property
    def search_word(self) -> str:
        """Return the metric's name in `best`: `package_mb`."""
        return self.word or self.name

    @property
    def tracked_name(self) -> str:
        """Return the metric's name in MLflow, e.g. `package_mb`; a metric with a scale is tracked in its shown unit."""
        return self.search_word if self.scale else self.name

    @property
    def shown_unit(self) -> str:
        return self.scale[0] if self.scale else "" if self.unit == "1" else self.unit

    @property
    def divisor(self) -> float:
        return self.scale[1] if self.scale else 1.0

    @property
    def column(self) -> str:
        """Return the heading of the metric's columns: `PSNR dB`."""
        return self.heading or f"{self.short} {self.shown_unit}".rstrip()

    def text(self, recorded: float | None) -> str:
        """Return a recorded value as tables show it, in the shown unit; `-` for None."""
        if recorded is None:
            return "-"
        value = recorded / self.divisor
        digits = (0 if value >= 1000 else 1 if value >= 1 else 3) if self.digits is None else self.digits
        return f"{value:.{digits}f}"


_ROWS = (  # in the order of the table's columns
    MetricSpec(  # of no kind of its own: results/headline.py chooses it for each cell, and no stage records it
        name="headline_ms", unit="ms", better=-1, label="latency", word="latency_ms", shows=("table", "report", "best"),
    ),
    MetricSpec(name="latency_median_ms", unit="ms", better=-1, shows=("mlflow",)),  # compared by a test of its processes
    MetricSpec(name="latency_iqr_ms", unit="ms", shows=("mlflow",)),
    MetricSpec(name="latency_p90_ms", unit="ms", better=-1, shows=("best",)),
    MetricSpec(name="load_ms", unit="ms", better=-1, shows=("best",)),
    MetricSpec(
        name="throughput_per_s", unit="1/s", better=1, label="inputs/s", heading="inputs/s", digits=1, drop_order=3,
        shows=("table", "mlflow"),
    ),
    MetricSpec(
        name="psnr_db", unit="dB", better=1, label="PSNR", digits=1, narrow="PSNR\ndB", shows=EVERYWHERE,
        least_change=1.0, ceiling=100.0,  # programs that agree to 100 dB and more agree alike
    ),
    MetricSpec(
        name="psnr_worst_db", unit="dB", better=1, label="worst output", heading="PSNR dB, worst output", digits=1,
        fallback="psnr_db", least_change=1.0, ceiling=100.0, shows=("table", "mlflow", "best", "compare"),
    ),
    MetricSpec(name="cosine", better=1, shows=("best",)),
    MetricSpec(name="rank_agreement", better=1, shows=("best",)),
    MetricSpec(name="top1_agreement", better=1, shows=("best",)),
    MetricSpec(name="perplexity", better=-1, score=True, torch="perplexity_torch", least_share=0.01, shows=EVERYWHERE),
    MetricSpec(name="accuracy", better=1, score=True, torch="accuracy_torch", least_share=0.01, shows=EVERYWHERE),
    MetricSpec(name="label_agreement", better=1, score=True, least_share=0.01, shows=EVERYWHERE),
    MetricSpec(
        name="task_top1_agreement", better=1, score=True, label="top1 agreement", least_share=0.01, shows=EVERYWHERE
    ),
    MetricSpec(name="embedding_rank_agreement", better=1, score=True, least_share=0.01, shows=EVERYWHERE),
    MetricSpec(name="perplexity_torch", better=-1, shows=("best",)),
    MetricSpec(name="accuracy_torch", better=1, shows=("best",)),
    MetricSpec(name="task_top5_agreement", better=1, shows=("best",)),
    MetricSpec(name="task_kl", unit="nat", better=-1, digits=5, shows=("best",)),
    MetricSpec(name="embedding_cosine", better=1, digits=4, shows=("best",)),
    MetricSpec(name="embedding_spearman", better=1, shows=("best",)),
    MetricSpec(name="embedding_spearman_torch", better=1, shows=("best",)),
    MetricSpec(
        name="package_bytes", unit="bytes", better=-1, label="package", word="package_mb", scale=("MB", 1e6), digits=None,
        narrow="MB", shows=EVERYWHERE, least_share=0.01, worse="larger", improved="smaller",
    ),
    MetricSpec(
        name="bits_per_weight", unit="bit", better=-1, heading="bits a weight", digits=2, varying="precision",
        narrow="bits", drop_order=1, shows=("table", "best"),
    ),
    MetricSpec(
        name="peak_memory_bytes", unit="bytes", better=-1, word="peak_memory_mb", scale=("MB", 1e6), digits=None,
        over_processes="largest", shows=("best",),
    ),
    MetricSpec(name="energy_ane_mj", unit="mJ", better=-1, shows=("mlflow",)),
    MetricSpec(name="latency_ms", unit="ms", kind="estimated", better=-1, word="estimated_ms", shows=("mlflow", "best")),
    MetricSpec(
        name="cost_share_ane", kind="predicted", better=1, label="ANE share of the cost", word="ane_cost_share",
        shows=("mlflow", "best"),
    ),
    MetricSpec(
        name="ops_share_ane", kind="predicted", better=1, word="ane_share", ratio=("ops_ane", "ops_total"),
        shows=("mlflow", "best"),
    ),
)  # fmt: skip
METRICS = {spec.name: spec for spec in _ROWS}
# Recorded names that have no row: they show nowhere but in records, frames and under `rest.` in MLflow.
_WITHOUT_ROW = {
    "ops_cpu", "ops_gpu", "ops_ane", "ops_total", "segments", "transitions", "ane_tasks", "plan_agreement", "kl",
    "equal_values", "score_rows", "score_positions", "convert_s", "rewrite_s", "calibrate_s", "compress_s", "compile_s",
    "chunk_bytes_max", "chunk_bytes_ideal", "boundary_bytes", "footprint_bytes", "footprint_peak_bytes",
    "ane_compiler_peak_bytes", "die_celsius", "throughput_total_s", "first_predict_ms", "first_predict_cold_ms",
    "latency_processes", "latency_copies_ratio",
}  # fmt: skip
RECORDED = {*_WITHOUT_ROW, *(spec.name for spec in _ROWS if not spec.ratio)} - {"headline_ms"}
_MADE_NAMES = re.compile(  # of parts and units
    r"(latency|load)_(\w+_)?ms|service_\w+_(bytes|cpu_s)|machine_\w+_bytes|(energy|power)_\w+_m[jw]"
)
# Figures that a cell needs to be weighed against others in the report, and what it calls the best cell at each. A cell
# without a headline latency is weighed by the first of RANKED_UNTIMED in its place.
RANKED = {"headline_ms": "fastest", "package_bytes": "smallest", "psnr_db": "most accurate"}
RANKED_UNTIMED = {"cost_share_ane": "most on the ANE", "package_bytes": "smallest", "psnr_db": "most accurate"}


def shown_in(place: Place) -> list[MetricSpec]:
    """Return the metrics that one place shows, in the order of the registry."""
    return [spec for spec in METRICS.values() if place in spec.shows]


class Recorded(Protocol):
    """The fields of a record that the registry reads."""

    def read(self, name: str, kind: Kind = "measured", chip: str | None = None) -> float | None: ...


def is_recorded(name: str) -> bool:
    """Return True for the name of a metric that records of this version can have."""
    return name in RECORDED or name in METRICS or _MADE_NAMES.fullmatch(name) is not None


def unit(name: str) -> str:
    """Return the unit in which a metric is recorded; "1", a plain number, for one without a row."""
    return METRICS[name].unit if name in METRICS else "1"


def value(record: Recorded, spec: MetricSpec, chip: str | None = None) -> float | None:
    """Return the recorded figure of a metric, or of its fallback, or the value of its ratio; None if the record has none of them."""
    if spec.ratio:
        part, whole = (record.read(name, spec.kind, chip) for name in spec.ratio)
        return part / whole if part is not None and whole else None
    found = record.read(spec.name, spec.kind, chip)
    return record.read(spec.fallback, spec.kind, chip) if found is None and spec.fallback else found


def scores() -> list[MetricSpec]:
    """Return the metrics that say how well a model does its task."""
    return [spec for spec in METRICS.values() if spec.score]


def by_search_word() -> dict[str, MetricSpec]:
    """Return {name in `best`: metric} of the metrics that `best` accepts by a short name."""
    return {spec.search_word: spec for spec in shown_in("best")}


def compare_buckets(specs: Sequence[MetricSpec]) -> tuple[list[str], list[str]]:
    """Return the buckets of a comparison that these metrics can fall into: (regressions, improvements)."""
    return list(dict.fromkeys(spec.worse for spec in specs)), list(dict.fromkeys(spec.improved for spec in specs))
