"""The export of a sweep's records to MLflow, with the links and the command that show them.

    describe.py   records -> params, tags, scored inputs and artifact texts; plain Python without mlflow, as are
    naming.py     names of runs that sort well; figures.py   the metrics, their names and order
    store.py      connects and logs, never twice; only this file and writers.py import mlflow
    writers.py    writes runs to the tracker, in bulk or one by one
    address.py    the supported tracking addresses, and a test that a server answers
    layout.py     the charts of a sweep, laid out for MLflow's UI
    links.py      the compare page of a sweep, the command that starts MLflow's UI

The tracker is fed from records.jsonl and nothing is ever read back from it into a record.
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
