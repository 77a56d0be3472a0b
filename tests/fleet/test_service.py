"""A scheduler and a worker as their commands start them, on loopback and without a word about certificates: which ports are
open, who may use them, how each ends, and what a worker that is refused says."""

import contextlib
import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import psutil
import pytest

from ane_sweep.__main__ import main
from ane_sweep.bridge import protocol
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import certificates, link, members, service
from ane_sweep.runner import dask_connection
from tests.bench import _shelf


class Fleet:
    def __init__(self, folder):
        self.folder, self.port, self.worker_port = folder, _shelf.free_port(), _shelf.free_port()
        self.address = f"tls://127.0.0.1:{self.port}"
        self.processes = {}

    def start(self, role, *words):
        with open(self.folder / f"{role}.log", "ab") as log:
            self.processes[role] = subprocess.Popen(stdout=log, stderr=log, **self._command(role, *words))

    def run(self, role, *words):
        return subprocess.run(capture_output=True, text=True, timeout=100, **self._command(role, *words))

    def _command(self, role, *words):
        command = [sys.executable, "-P", "-m", "ane_sweep", "fleet", role, self.address, *words]
        env = protocol.python_environment() | {"ANE_SWEEP_OUT": str(self.folder / "out")}
        return {"args": command, "env": env, "stdin": subprocess.DEVNULL, "cwd": self.folder}

    def log(self, role):
        return (self.folder / f"{role}.log").read_text()

    def tree(self, role):
        process = psutil.Process(self.processes[role].pid)
        return [process, *process.children(recursive=True)]

    def connected(self):
        return link.connected(self.address, certificates.folder(None), 20)

    def work(self):
        """Start the worker; return once it has joined."""
        before = self.log("worker").count("joined") if "worker" in self.processes else 0
        self.start("worker", "--name", "a", "--port", str(self.worker_port))
        log = self.folder / "worker.log"
        _shelf.until("the worker", lambda: self.log("worker").count("joined") > before, log=log)

    def end(self):
        for role in self.processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in self.tree(role):
                    process.kill()
            self.processes[role].wait()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("HOME", str(folder))  # of which macOS makes the data folder
        patch.delenv(certificates.VARIABLE, raising=False)
        made = Fleet(folder)
        made.start("scheduler")
        try:
            made.work()
            yield made
        finally:
            made.end()


@pytest.mark.slow
@pytest.mark.ci
def test_no_port_is_open_but_the_two_that_were_asked_for(fleet):
    trees = [*fleet.tree("scheduler"), *fleet.tree("worker")]
    assert len(trees) == 4, "two commands, and what each serves with"
    open_ports = {
        one.laddr[:2] for process in trees for one in process.net_connections("inet") if one.status == "LISTEN"
    }
    assert open_ports == {("127.0.0.1", fleet.port), ("127.0.0.1", fleet.worker_port)}
    with fleet.connected():
        here = [one.laddr for one in psutil.Process().net_connections("inet") if one.status == "LISTEN"]
    assert not here, "nor has a sweep's client one"


@pytest.mark.slow
@pytest.mark.ci
def test_dask_sets_no_number_of_threads_for_what_is_timed(fleet):
    """Its nanny would: OMP_NUM_THREADS=1."""
    environment = psutil.Process(fleet.tree("worker")[1].pid).environ()
    assert {name for name in environment if name.endswith("_NUM_THREADS")} == {
        name for name in os.environ if name.endswith("_NUM_THREADS")
    }
    with fleet.connected() as client:
        assert client.submit(os.getenv, "OMP_NUM_THREADS").result(timeout=20) == os.getenv("OMP_NUM_THREADS")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("which", ["scheduler", "worker"])
def test_whoever_has_no_certificate_runs_nothing(fleet, tmp_path, which):
    """Each port speaks TLS with those who show a certificate of this fleet, and with nobody else."""
    import dask
    from distributed import Client, Security

    host = f"127.0.0.1:{fleet.port if which == 'scheduler' else fleet.worker_port}"
    marker = tmp_path / "ran"
    foreign = Security.temporary()
    for scheme, safe in (("tcp", None), ("tls", foreign)):
        with (
            pytest.raises((OSError, TimeoutError)),
            dask.config.set({"distributed.comm.require-encryption": False}),  # an intruder has none of our settings
            Client(f"{scheme}://{host}", security=safe, timeout=2, set_as_default=False) as client,
        ):
            client.submit(os.mkdir, str(marker)).result(timeout=5)
    anonymous = ssl.create_default_context()
    anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(host.split(":"), 5) as plain, pytest.raises((ssl.SSLError, ConnectionResetError)):
        anonymous.wrap_socket(plain).recv(1)
    assert not marker.exists()
    if which == "scheduler":
        with fleet.connected() as client:
            client.submit(os.mkdir, str(marker)).result(timeout=20)
        assert marker.exists(), "the same function, with the certificates"


def refused(fleet, *words):
    """What a command says that ends with 2, and at once."""
    began = time.monotonic()
    ended = fleet.run(*words)
    assert ended.returncode == 2 and "Traceback" not in ended.stderr and "joined" not in ended.stdout + ended.stderr
    assert time.monotonic() - began < 20
    return ended.stderr


@pytest.mark.slow
@pytest.mark.ci
def test_a_worker_whose_name_is_taken_says_so_and_ends(fleet):
    assert "another worker of that name; --name" in refused(fleet, "worker", "--name", "a")


@pytest.mark.slow
@pytest.mark.ci
def test_a_worker_of_other_certificates_says_so_and_ends(fleet, tmp_path):
    certificates.make(tmp_path / "c")
    said = refused(fleet, "worker", "--certificates", str(tmp_path / "c"), "--name", "b")
    assert "not trusted" in said and str(tmp_path / "c") in said


@pytest.mark.slow
@pytest.mark.ci
def test_a_scheduler_or_worker_whose_port_is_taken_says_so_and_ends(fleet):
    assert "cannot listen" in refused(fleet, "scheduler")
    assert "cannot listen" in refused(fleet, "worker", "--name", "b", "--port", str(fleet.worker_port))


@pytest.mark.slow
@pytest.mark.ci
def test_a_worker_of_other_code_or_versions_is_refused_with_what_differs(fleet, monkeypatch):
    place = certificates.folder(None)
    service.admit(fleet.address, place, "b")
    theirs, same = members.tools(), members.describe_differences
    monkeypatch.setattr(members, "describe_differences", lambda known, ours: same(known, {**ours, "code": "0"}))
    with pytest.raises(ConfigError, match=f"whose code {theirs['code']} .here 0.: install the same"):
        service.admit(fleet.address, place, "b")


@pytest.mark.slow
@pytest.mark.ci
def test_what_speaks_no_tls_is_told_from_what_does_not_answer(fleet):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        at = f"tls://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(link.Distrusted, match="does not speak TLS"):
            link.reach(at, certificates.folder(None), 5)
        with pytest.raises(link.Unreachable, match="no answer") as silent:
            link.reach(at, certificates.folder(None), 0.2)
        threading.Thread(target=lambda: server.accept()[0].close() or server.accept()[0].close(), daemon=True).start()
        with pytest.raises(link.Unreachable) as closed:
            link.reach(at, certificates.folder(None), 5)
    for transient in (silent.value, closed.value):
        assert not isinstance(transient, link.Distrusted), "a worker waits for it"


@pytest.mark.slow
@pytest.mark.ci
def test_status_answers_beside_a_worker_that_stands_still(fleet, capsys):
    serves = fleet.tree("worker")[1]
    serves.suspend()
    try:
        began = time.monotonic()
        assert main(["fleet", "status", fleet.address]) == 0
        assert time.monotonic() - began < 5 and "1 worker, 0 tasks running" in capsys.readouterr().out
        time.sleep(members.SILENT_S + 1)
        assert main(["fleet", "status", fleet.address, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["silent_s"]["a"] >= members.SILENT_S
        line = dask_connection.SchedulerSession(
            fleet.address, certificates.folder(None), "sweep", queue.Queue(), None, None
        )
        began = time.monotonic()
        line.stop()
        assert time.monotonic() - began < 5, "nor does Ctrl-C in a sweep wait for it"
        line.close()
    finally:
        serves.resume()


@pytest.mark.slow
@pytest.mark.ci
def test_kill_9_of_a_workers_command_ends_its_worker(fleet):
    serves = fleet.tree("worker")[1]
    with fleet.connected() as client:
        task = client.submit(time.sleep, 300, pure=False)  # held: what nobody holds is not run
        _shelf.until("a task that runs", lambda: members.read_activity(client).running, 20)
        os.kill(fleet.processes["worker"].pid, signal.SIGKILL)
        fleet.processes["worker"].wait()
        psutil.wait_procs([serves], timeout=10)
        assert not serves.is_running()
        task.cancel()
        _shelf.until("a fleet without it", lambda: not members.list_members(client)[0], 10)
    fleet.work()


@pytest.mark.slow
@pytest.mark.ci
def test_what_ends_by_itself_is_started_again(fleet):
    serves = fleet.tree("worker")[1]
    joined = fleet.log("worker").count("joined")
    serves.kill()
    _shelf.until("the worker", lambda: fleet.log("worker").count("joined") == joined + 1)
    assert "it is started again" in fleet.log("worker") and "Traceback" not in fleet.log("worker")


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_told_to_end_leaves_no_process(fleet, number):
    tree = fleet.tree("worker")
    fleet.processes["worker"].send_signal(number)
    assert fleet.processes["worker"].wait(15) == 130
    assert not [process for process in tree if process.is_running()]
    fleet.work()
