"""Two ways to write runs to MLflow: all at once if the tracker is a database, one by one through its client.

The client costs 20 to 30 ms of CPU a run in a database, six transactions each (measured: 22 s for 1,000 cells, 2 s in
bulk). `Bulk` writes the same rows with MLflow's own table classes in one transaction, so a sweep is logged completely
or not at all. Those classes are no public interface: any failure in them raises `Unsupported`, and the client takes
over. A test checks that both write equal runs.
"""

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from ane_sweep.errors import TrackingError
from ane_sweep.tracking.address import CONNECT_SECONDS, LOCKED
from ane_sweep.tracking.describe import Dataset, RunText

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

MLFLOW_CONTEXT, CONTEXT = "mlflow.data.context", "scoring"  # what a dataset is to a run
METRICS_PER_BATCH, PARAMS_PER_BATCH = 900, 100  # MLflow takes 1,000 things a request, 100 of them params


Row = dict[str, object]


class Unsupported(Exception):
    """Raised if the tracker is no database, or one with a layout that this version does not know."""


class OneByOne:
    """The writer through MLflow's client: create with all tags, one batch, end."""

    def __init__(self, client: "MlflowClient", experiment_id: str):
        self.client, self.experiment_id = client, experiment_id

    def create(self, text: RunText, begin: int, end: int) -> tuple[str, str]:
        """Create a run. Return (run id, artifact URI); times in milliseconds since the epoch."""
        from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

        run = self.client.create_run(self.experiment_id, start_time=begin, run_name=text.name, tags=text.tags)
        metrics = [Metric(key, value, end, step) for key, value, step in text.metrics]
        params = [Param(key, value) for key, value in text.params.items()]
        while metrics or params:
            self.client.log_batch(run.info.run_id, metrics[:METRICS_PER_BATCH], params[:PARAMS_PER_BATCH])
            metrics, params = metrics[METRICS_PER_BATCH:], params[PARAMS_PER_BATCH:]
        if text.dataset:
            tags = [InputTag(MLFLOW_CONTEXT, CONTEXT)]
            self.client.log_inputs(run.info.run_id, [DatasetInput(Dataset(**vars(text.dataset)), tags)])
        self.client.set_terminated(run.info.run_id, text.status, end)
        return run.info.run_id, run.info.artifact_uri

    def flush(self) -> None:
        """Do nothing, as every run is written already."""


class Bulk:
    """The writer of many runs: `create` collects rows, and `flush` writes them in one transaction."""

    def __init__(self, client: "MlflowClient", experiment_id: str):
        try:
            from mlflow.store.tracking.dbmodels import models
            from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
            from mlflow.utils.uri import append_to_uri_path
            from sqlalchemy import select

            self.store = client._tracking_client.store
            if not isinstance(self.store, SqlAlchemyStore):
                raise Unsupported(f"{type(self.store).__name__} is no database")
            self.root = client.get_experiment(experiment_id).artifact_location
            self.experiment_id = int(experiment_id)
            tables = (models.SqlRun, models.SqlTag, models.SqlParam, models.SqlMetric, models.SqlLatestMetric)
            inputs = (models.SqlDataset, models.SqlInput, models.SqlInputTag)
            table = models.SqlDataset
            wanted = select(table).where(table.experiment_id == self.experiment_id)
            with self.store.ManagedSessionMaker() as session:
                self.known = {(one.name, one.digest): one.dataset_uuid for one in session.scalars(wanted)}
        except (ImportError, AttributeError, ValueError) as error:
            raise Unsupported(str(error)) from error
        self.rows: dict[type, list[Row]] = {table: [] for table in (*tables, *inputs)}
        self.join: Callable[..., str] = append_to_uri_path

    def create(self, text: RunText, begin: int, end: int) -> tuple[str, str]:
        """Add a run that `flush` will write. Return (run id, artifact URI)."""
        run_id = uuid.uuid4().hex
        runs, tags, params, metrics, latest, *_ = self.rows.values()
        place = self.join(self.root, run_id, "artifacts")
        user = text.tags.get("mlflow.user", "unknown")
        unused = dict.fromkeys(("source_name", "entry_point_name", "source_version"), "")
        times = {"start_time": begin, "end_time": end, "experiment_id": self.experiment_id, "artifact_uri": place}
        states = {"status": text.status, "lifecycle_stage": "active", "user_id": user, "source_type": "UNKNOWN"}
        runs.append({"run_uuid": run_id, "name": text.name, **times, **states, **unused})
        for table, values in ((tags, {**text.tags, "mlflow.runName": text.name}), (params, text.params)):
            table += [{"run_uuid": run_id, "key": key, "value": value} for key, value in values.items()]
        last: dict[str, tuple[tuple[int, float], Row]] = {}
        for key, figure, step in dict.fromkeys(text.metrics):
            row = {"run_uuid": run_id, "key": key, "value": figure, "timestamp": end, "step": step, "is_nan": False}
            metrics.append(row)
            if key not in last or (step, figure) >= last[key][0]:
                last[key] = (step, figure), row
        latest += [row for _, row in last.values()]
        if text.dataset:
            self._scored_on(run_id, text.dataset)
        return run_id, place

    def _scored_on(self, run_id: str, dataset: Dataset) -> None:
        *_, datasets, inputs, tags = self.rows.values()
        key = dataset.name, dataset.digest
        if key not in self.known:
            self.known[key] = uuid.uuid4().hex
            told = {f"dataset_{name}": value for name, value in vars(dataset).items() if name not in ("name", "digest")}
            own = {"dataset_uuid": self.known[key], "experiment_id": self.experiment_id, "dataset_schema": None}
            datasets.append({**own, **told, "name": dataset.name, "digest": dataset.digest})
        edge = {"source_type": "DATASET", "source_id": self.known[key], "destination_type": "RUN"}
        inputs.append({"input_uuid": (made := uuid.uuid4().hex), **edge, "destination_id": run_id})
        tags.append({"input_uuid": made, "name": MLFLOW_CONTEXT, "value": CONTEXT})

    def flush(self) -> None:
        """Write all runs, or none and raise Unsupported; raises TrackingError if another program locks the database."""
        try:
            from sqlalchemy import insert, text

            with self.store.ManagedSessionMaker(read_only=False) as session:
                if self.store.engine.dialect.name == "sqlite":
                    session.execute(text(f"PRAGMA busy_timeout = {1000 * CONNECT_SECONDS}"))  # MLflow's own: 20 s
                for table, rows in self.rows.items():
                    if rows:
                        session.execute(insert(table), rows)
        except Exception as error:
            if "database is locked" in str(error):  # and so it would be for each run of its own
                raise TrackingError(LOCKED) from error
            raise Unsupported(str(error)) from error
