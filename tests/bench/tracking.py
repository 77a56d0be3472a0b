"""Logging a sweep of 1,000 cells (--cells=N) to sqlite, beside MLflow's fluent API called cell by cell (2 minutes and more)"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.record import Record, Status, write_records
from tests.bench import Row, timed

CELLS = 1000
OURS = """
import sys
from pathlib import Path
from ane_sweep.tracking import log_sweep
log_sweep(Path(sys.argv[1]), uri=None, experiment="x")
"""
# What a user writes today: a nested run per cell, a call per figure, a file as artifact.
NAIVE = """
import json, os, sys
import mlflow
records = [json.loads(line) for line in open(sys.argv[1] + "/records.jsonl")]
os.chdir(sys.argv[1])  # MLflow leaves artifacts in ./mlruns
mlflow.set_tracking_uri("sqlite:///naive.db")
mlflow.set_experiment("x")
with mlflow.start_run(run_name="sweep"):
    for record in records:
        with mlflow.start_run(run_name=record["cell"]["model"], nested=True):
            for key in ("model", "variant", "precision", "chunks", "seq_len"):
                mlflow.log_param(key, record["cell"][key])
            for key in ("host", "toolchain", "weights"):
                mlflow.set_tags({key + "." + name: value for name, value in record[key].items()})
            for entry in record["metrics"]:
                mlflow.log_metric(entry["kind"] + "." + entry["name"], entry["value"])
            mlflow.log_dict(record, "record.json")
"""


def records(count: int) -> list[Record]:
    """Cells of the shape that sweeps leave, with made-up figures: CONSTRUCTED."""
    found = []
    for n in range(count):
        cell = {
            "model": f"model-{n % 10}",
            "variant": "original",
            "precision": "fp16",
            "chunks": 1 + n % 5,
            "seq_len": 16 + n // 5,
        }
        figures = {
            f"latency_{name}_ms": 1.0 + n % 7
            for name in ("first", "early", "median", "iqr", "p90", "p99", "low", "high")
        }
        figures |= {"psnr_db": 70.0, "cosine": 1.0, "package_bytes": 1e8, "convert_s": 5.0, "load_ms": 90.0}
        metrics = [Metric(name, value) for name, value in figures.items()]
        for chip in ("m1", "m4", "a17_pro"):
            metrics += [Metric(name, 9.0, kind="predicted", chip=chip) for name in ("ops_ane", "ops_cpu")]
        host = {"system": "x"}
        found.append(
            Record("constructed", f"{n:064x}", cell, Status.OK, metrics=metrics, host=host, toolchain={"torch": "x"})
        )
    return found


def run() -> list[Row]:
    """One run of each in a fresh process, imports and a new database included."""
    given = argparse.ArgumentParser()
    given.add_argument("--cells", type=int, default=CELLS)
    count = given.parse_known_args()[0].cells
    with tempfile.TemporaryDirectory() as folder:
        run_folder = Path(folder) / "out" / "runs" / "constructed"
        write_records(run_folder, records(count))
        ours = timed([sys.executable, "-P", "-c", OURS, str(run_folder)])
        began = time.perf_counter()
        timed([sys.executable, "-P", "-c", NAIVE, str(run_folder)], MLFLOW_DISABLE_TELEMETRY="true")
        naive = time.perf_counter() - began
    return [Row(f"logging {count:,} cells to sqlite", f"{ours:.1f} s", f"{naive:.1f} s", f"{ours / naive:.3f}")]
