"""Addresses in MLflow's UI and the command that starts it. Text only, without mlflow."""

import json
import re
import shlex
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from ane_sweep.tracking import layout

if TYPE_CHECKING:
    from ane_sweep.tracking.store import Logged

UI = "http://127.0.0.1:5000"
WORKSPACE = (
    "workflowType=machine_learning"  # unasked, MLflow 3.17 opens what it has for GenAI, on an empty page of traces
)
COMPARE_LIMIT = 100  # runs: the address names each one in 41 characters, and 4 KB is what terminals still paste


def compare_link(logged: "Logged", ui: str | None = None) -> str:
    """Return the address that compares this sweep's cells, or, for more than COMPARE_LIMIT cells, the experiment's
    filtered charts.

    ui: address of MLflow's UI; by default the tracking server itself, else UI as `ui_command` starts it.
    If any cell has a latency, only such cells are compared, as the page begins with a metric that all its runs have.
    """
    runs = logged.timed or list(logged.runs.values())
    if not 0 < len(runs) <= COMPARE_LIMIT:
        return experiment_link(logged, ui)
    ids = json.dumps(runs, separators=(",", ":"))
    experiments = json.dumps([logged.experiment_id])
    return f"{_ui(logged, ui)}/#/compare-runs?runs={quote(ids, safe=',')}&experiments={quote(experiments)}&{WORKSPACE}"


def experiment_link(logged: "Logged", ui: str | None = None) -> str:
    """Return the address of the experiment's charts for all of this sweep's cells, best first.

    Any order but MLflow's own, by date, keeps the cells from being folded away under their parent run. It opens the
    sweep's own view (layout.py) if the tracker accepted it.
    """
    page = f"{_ui(logged, ui)}/#/experiments/{logged.experiment_id}/runs"
    if logged.view:  # beside a filter of its own the page would leave a shared view alone (v3.17)
        return f"{page}?compareRunsMode=CHART&viewStateShareKey={logged.view}&{WORKSPACE}"
    wanted = quote(layout.cells_of(logged.sweep), safe="")
    name, ascending = logged.order
    order = quote(f"metrics.`{name}`", safe="")
    return f"{page}?searchFilter={wanted}&orderByKey={order}&orderByAsc={str(ascending).lower()}&compareRunsMode=CHART&{WORKSPACE}"


def ui_command(logged: "Logged", ui: str | None = None) -> str | None:
    """Return the command that serves MLflow's UI on a database; None for a server, which has its own UI."""
    if logged.uri.startswith(("http://", "https://")):
        return None
    port = urlsplit(ui or UI).port or 5000
    first = f"cd {shlex.quote(str(logged.within))} && " if logged.within else ""
    return f"{first}mlflow ui --backend-store-uri {shlex.quote(logged.uri)} --port {port}"


def _ui(logged: "Logged", ui: str | None) -> str:
    served = logged.uri if logged.uri.startswith(("http://", "https://")) else UI
    return re.sub(r"(?<=://)[^/@]*@", "", ui or served).rstrip("/")  # a browser asks for what was hidden
