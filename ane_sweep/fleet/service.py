"""The long-running commands `ane-sweep fleet scheduler` and `fleet worker`: each starts `serve` and starts it again.

Also the files that keep them running: a user service of systemd, a launch agent of launchd.
"""

import plistlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from ane_sweep.bridge.protocol import python_environment
from ane_sweep.errors import ConfigError
from ane_sweep.fleet import address, link, members
from ane_sweep.fleet.serve import Request
from ane_sweep.machine import unit_files
from ane_sweep.terminal import BAD_CONFIGURATION, say

# What to do with a unit file.
UNIT_STEPS = {
    "systemd": "copy it to ~/.config/systemd/user/, then: systemctl --user enable --now {label}.service; "
    "loginctl enable-linger keeps it running when you are logged out",
    "launchd": "copy it to ~/Library/LaunchAgents/, then: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{label}.plist",
}
_AGAIN_S = 3.0
_END_S = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")


def scheduler(at: str, place: Path) -> Request:
    """Return the request for a scheduler that listens at one address only."""
    host, port = address.host_and_port(at)
    return Request(host, port, str(place))


def worker(at: str, place: Path, port: int, name: str, resources: Mapping[str, float], scratch: Path) -> Request:
    """Return the request for a worker. It has a thread for each task that may wait in it, as child processes do the work."""
    threads = int(resources["PREP"] + resources["TIME"]) + 1
    return Request("", port, str(place), at, name, threads, dict(resources), str(scratch))


def checked_name(asked: str | None) -> str:
    """Return a worker's name, by default this host's. Raises ConfigError."""
    name = asked or re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname().partition(".")[0]) or "worker"
    if not _NAME.fullmatch(name):
        raise ConfigError(f"--name {name}: expected letters, digits, _, . and -, as m4-a")
    return name


def run(prepare: Callable[[], Request], what: str) -> int:
    """Serve until Ctrl-C; restart after each end, for example when a worker's scheduler ends. Return 2 if it cannot
    listen.

    `prepare` is called before each start and returns the request. It raises Unreachable to wait and try again, and any
    other ConfigError to end.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs come with it ignored
    waits = ""
    while True:
        try:
            request = prepare()
        except link.Distrusted:
            raise
        except link.Unreachable as error:
            if waits != (waits := str(error)):
                say(f"{waits}; {what} waits for it, until Ctrl-C")
            time.sleep(_AGAIN_S)
            continue
        waits = ""
        if (code := _serve_once(request)) == BAD_CONFIGURATION:
            return code
        say(f"{what} ended (exit code {code}); it is started again in {_AGAIN_S:g} s, until Ctrl-C")
        time.sleep(_AGAIN_S)


def _serve_once(request: Request) -> int:
    """Start `serve`, which ends when the pipe to its stdin closes. Return its exit code."""
    command = [sys.executable, "-P", "-m", "ane_sweep.fleet.serve", msgspec.json.encode(request).decode()]
    with subprocess.Popen(command, env=python_environment(), stdin=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdin is not None
        try:
            return process.wait()
        except BaseException:
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def admit(at: str, place: Path, name: str) -> None:
    """Return if a worker of that name may join the scheduler now. Raises Unreachable if it may later, ConfigError if never."""
    try:
        with link.connected(at, place) as client:
            theirs = client.run_on_scheduler(members.tools)
            silent_s = members.read_activity(client).silent_s.get(name)
    except OSError as error:
        raise link.Unreachable(f"{at}: the scheduler there was lost ({type(error).__name__})") from None
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"worker {name}: the scheduler at {at} has no ane-sweep, or another one ({error}); `ane-sweep fleet scheduler` of the "
            "same version starts one"
        ) from None
    known = {key: version for key, version in theirs.items() if version is not None}  # a scheduler needs no torch
    ours = {key: version for key, version in members.tools().items() if key in known}
    if differ := members.describe_differences(known, ours):
        raise ConfigError(f"worker {name}: refused by {at}, whose {differ}: install the same on both machines")
    if silent_s is not None and silent_s < members.SILENT_S:
        raise ConfigError(f"worker {name}: {at} has another worker of that name; --name NAME gives this one its own")
    if silent_s is not None:
        raise link.Unreachable(
            f"{at} has a worker {name} that was last heard from {silent_s:.0f} s ago, and drops it after 60 s"
        )


def write_unit(kind: str, folder: Path, label: str, command: Sequence[str], log: Path) -> Path:
    """Write a unit file of a kind in UNIT_STEPS, and make the folder of its log. Return the file's path. Raises ConfigError.

    systemd  systemd.service(5); its log is the journal's. 130 is the exit code of an interrupted `ane-sweep`. KillMode=mixed tells
             the command alone, which ends what it started.
    launchd  launchd.plist(5). ProcessType Standard: macOS slows background jobs down, timings with them. caffeinate: a Mac that
             sleeps leaves its fleet.
    """
    unit_files.check_words(command)
    if kind == "systemd":
        name = f"{label}.service"
        text = (
            f"[Unit]\nDescription={label}\n\n[Service]\nEnvironment=PYTHONUNBUFFERED=1\n"
            f"ExecStart={unit_files.systemd_command(command)}\nRestart=always\nRestartSec=10\nSuccessExitStatus=130\n"
            "KillMode=mixed\nTimeoutStopSec=20\n\n[Install]\nWantedBy=default.target\n"
        )
    else:
        name, words = f"{label}.plist", ["/usr/bin/caffeinate", "-i", *command]
        values = {
            "Label": label,
            "ProgramArguments": words,
            "RunAtLoad": True,
            "KeepAlive": True,
            "ProcessType": "Standard",
        }
        text = plistlib.dumps(values | {"StandardOutPath": str(log), "StandardErrorPath": str(log)}).decode()
    for place in (folder, log.parent):
        place.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name
