"""MLflow's own pages in a real browser: the links that we print open what they promise, with our runs, names and figures.

Whatever the pages complain of fails, but for what MLflow's pages say of themselves with no run of ours in sight (`OWN_NOISE`).
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import browsers
import constructed
import pytest

from ane_sweep.bridge.figures import Metric
from ane_sweep.bridge.record import Status, write_records
from ane_sweep.tracking import compare_link, experiment_link, log_sweep

pytestmark = pytest.mark.slow
MAIN = ["estimated.m1.latency_ms", "measured.latency_iqr_ms", "measured.latency_median_ms", "measured.package_mb"]
MAIN += ["measured.psnr_db", "predicted.m1.ops_share_ane"]
PATIENCE_MS = 60_000  # a page of MLflow is 10 MB of script
OWN_NOISE = {
    "/ajax-api/2.0/mlflow/users/current": "asks who is logged in; a server without accounts answers 404 (3.17)",
    "ResizeObserver loop": "its charts are resized while they are laid out; browsers say so, nothing is lost",
}


def sweep(out):
    """Four cells with estimates and predictions, one of them in doubt: constructed, logged through our tracker."""
    records = constructed.records(4, bad=False)
    for number, record in enumerate(records):
        record.cell |= {
            "model": "minilm",
            "variant": ("original", "split_einsum")[number // 2],
            "chunks": 1 + number % 2,
        }
        record.cell |= {"precision": "fp16", "seq_len": 128}
        figures = {"ops_ane": 140 + number, "ops_total": 153, "cost_share_ane": 0.5}
        record.metrics += [Metric(name, value, "1", "predicted", "", "m1") for name, value in figures.items()]
        record.realised |= {"texts_count": 16, "texts_digest": "d1ge57"}
    records[3].status, records[3].reason = Status.DEGRADED, "timed while other programs were using the processor"
    folder = out / "runs" / constructed.STAMP
    write_records(folder, records)
    return folder


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(address of MLflow's server, what was logged)."""
    out = tmp_path_factory.mktemp("mlflow")
    logged = log_sweep(sweep(out), uri=None, experiment="ane-sweep")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with open(out / "log", "w") as log:
        server = subprocess.Popen(
            [*command, "--backend-store-uri", logged.uri], stdout=log, stderr=log, start_new_session=True, cwd=out,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
        )  # fmt: skip
    try:
        wait_for(f"http://127.0.0.1:{port}/health", server)
        yield f"http://127.0.0.1:{port}", logged
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # its workers as well
        server.wait()


def wait_for(address, server, patience=120):
    deadline = time.monotonic() + patience
    while True:
        try:
            return urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            assert server.poll() is None and time.monotonic() < deadline, "MLflow's server did not start"
            time.sleep(0.2)


@contextmanager
def opened(chromium, link, origin):
    """The page of a link; nothing but the server on the loopback address is asked for anything."""
    context = chromium.new_context(viewport=dict(zip(("width", "height"), browsers.DESKTOP)))
    context.set_default_timeout(PATIENCE_MS)
    context.route(lambda address: not address.startswith(origin), lambda route: route.fulfill(status=204, body=""))
    page, said = context.new_page(), []
    page.on("console", lambda m: said.append(f"{m.text} {m.location.get('url')}") if m.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(link)
    try:
        yield page
    finally:
        context.close()
    assert [text for text in said if not any(noise in text for noise in OWN_NOISE)] == []


@pytest.mark.ci
def test_the_compare_link_opens_our_runs_with_the_main_figures_first(chromium, served, screenshots):
    origin, logged = served
    with opened(chromium, compare_link(logged, origin), origin) as page:
        page.get_by_text("Comparing 4 Runs from 1 Experiment").wait_for()
        page.get_by_text(MAIN[0], exact=True).wait_for()
        text = page.inner_text("body")
        page.get_by_text(MAIN[0], exact=True).scroll_into_view_if_needed()
        page.screenshot(path=screenshots / "mlflow-compare.png")
    for name in ("minilm original chunks=1", "minilm original chunks=2", "minilm split_einsum chunks=2 ?"):
        assert name in text
    rows = [line for line in text.splitlines() if re.fullmatch(r"(rest\.)?(measured|estimated|predicted)\.\S+", line)]
    rows = list(dict.fromkeys(row for row in rows[rows.index(MAIN[0]) :]))
    first = [row for row in rows if not row.startswith("rest.")]
    assert set(MAIN) <= set(first) and rows[: len(first)] == first, rows


def test_the_chart_link_opens_the_charts_that_were_laid_out(chromium, served, screenshots):
    origin, logged = served
    assert logged.view is not None
    with opened(chromium, experiment_link(logged, origin), origin) as page:
        page.get_by_text("Parallel Coordinates").wait_for()
        page.get_by_text("measured.latency_median_ms vs. measured.psnr_db").wait_for()
        page.locator(".legend, .g-gtitle, .js-plotly-plot").first.wait_for()
        text = page.inner_text("body")
        page.screenshot(path=screenshots / "mlflow-charts.png")
        assert page.get_by_text("Model training").is_visible()
        assert "workflowType=machine_learning" in page.url and "Traces" not in page.title()
        page.mouse.move(600, 600)
        page.mouse.wheel(0, 900)  # a chart is made when it comes into view
        page.get_by_text("estimated.m1.latency_ms vs. predicted.m1.ops_share_ane").wait_for()
        page.screenshot(path=screenshots / "mlflow-charts-2.png")
    assert "minilm original chunks=1" in text and "[weights=random]" not in text
    assert "Contour" not in text


def test_the_runs_table_marks_the_cell_in_doubt_and_names_the_sweep_by_its_content(chromium, served, screenshots):
    origin, logged = served
    order = "orderByKey=metrics.%60measured.latency_median_ms%60&orderByAsc=true"  # by date, cells are folded away
    table = f"{origin}/#/experiments/{logged.experiment_id}/runs?workflowType=machine_learning&{order}"
    with opened(chromium, table, origin) as page:
        page.get_by_text("minilm x variant, chunks (4)").wait_for()
        page.get_by_text("minilm split_einsum chunks=2 ?").wait_for()
        text = page.inner_text("body")
        page.screenshot(path=screenshots / "mlflow-runs.png")
    assert "real texts" in text, "the dataset that they were scored on"
