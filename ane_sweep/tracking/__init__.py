"""The export of a sweep's records to MLflow, with the links and the command that show them.

The tracker is fed from records.jsonl and nothing is ever read back from it into a record. Only store.py and writers.py import
mlflow; the rest is plain Python.
"""

from ane_sweep.tracking.address import check_scheme, reopened
from ane_sweep.tracking.links import compare_link, experiment_link, ui_command
from ane_sweep.tracking.store import Logged, log_sweep, make_ready

__all__ = [
    "Logged",
    "check_scheme",
    "compare_link",
    "experiment_link",
    "log_sweep",
    "make_ready",
    "reopened",
    "ui_command",
]
