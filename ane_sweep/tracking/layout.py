"""The page on which MLflow shows a sweep: charts laid out beforehand, as what its UI calls a shared view.

MLflow keeps a shared view as a tag of the experiment, mlflow.sharedViewState.KEY, and opens it with viewStateShareKey=KEY
(v3.17; it takes plain JSON as well as its own compressed text). What it cannot read it says and shows its usual page.
Plain Python, no tracker.
"""

import hashlib
import json
from typing import Any

from ane_sweep.bridge.record import Record
from ane_sweep.tracking.describe import FIRST_METRIC, metric_key

TAG = "mlflow.sharedViewState."
TAG_LIMIT = 5000  # of an experiment's tag
LATENCY, PSNR, SIZE = FIRST_METRIC, "measured.psnr_db", "measured.package_bytes"
RUNS = 100  # that MLflow shows in one chart at most
SECTION = "ane-sweep"


def view_key(sweep: str) -> str:
    """The key of a sweep's view, letters and digits only."""
    return "ane" + hashlib.sha256(sweep.encode()).hexdigest()[:16]


def shared_view(records: list[Record], axes: list[str]) -> str | None:
    """The view as JSON: parallel coordinates over all axes, then the figures against each other. None where it is too long.

    Charts whose metrics no cell has are left out. The last metric of the parallel coordinates gives the colours.
    """
    known = {metric_key(metric) for record in records for metric in record.metrics}
    figures = [name for name in (PSNR, SIZE, LATENCY) if name in known]
    cards = (
        [_card("PARALLEL", selectedParams=axes, selectedMetrics=figures, showAllRuns=True)] if axes and figures else []
    )
    for names, kind in (((LATENCY, PSNR), "SCATTER"), ((SIZE, PSNR), "SCATTER"), ((LATENCY, SIZE, PSNR), "CONTOUR")):
        if set(names) <= known:
            places = {place: {"key": name, "type": "METRIC"} for place, name in zip(("xaxis", "yaxis", "zaxis"), names)}
            cards.append(_card(kind, **places))
    cards += [_card("BAR", metricKey=name) for name in figures[::-1]]
    for number, card in enumerate(cards):
        card["uuid"] = f"{SECTION}-{number}"
    sections = [
        {
            "uuid": SECTION,
            "name": "Sweep",
            "display": True,
            "isReordered": False,
            "deleted": False,
            "isGenerated": False,
        }
    ]
    state = {
        "searchFilter": cells_of(records[0].sweep),
        "orderByKey": f"metrics.`{LATENCY}`",
        "orderByAsc": True,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "compareRunCharts": cards,
        "compareRunSections": [{**section, "columns": 2, "cardHeight": 460} for section in sections],
        "runsHiddenMode": "SHOWALL",
        "runListHidden": True,
    }
    text = json.dumps(state, separators=(",", ":"))
    return text if len(text) <= TAG_LIMIT else None


def cells_of(sweep: str) -> str:
    """MLflow's filter for the cells of one sweep, without their parent."""
    return f"tags.`ane_sweep.sweep` = '{sweep}' AND tags.`ane_sweep.cell_key` != ''"


def _card(kind: str, **more: Any) -> dict[str, Any]:
    common = {
        "type": kind,
        "runsCountToCompare": RUNS,
        "metricSectionId": SECTION,
        "deleted": False,
        "isGenerated": False,
    }
    return {**common, **more}
