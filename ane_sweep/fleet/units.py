"""Files that keep a scheduler or worker of a fleet running: a user service of systemd, a launch agent of launchd."""

import plistlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ane_sweep.machine import unit_files


def systemd(label: str, command: Sequence[str], log: Path) -> tuple[str, str]:
    """Return (file name, text) of a service (systemd.service(5)); its log is the journal's.

    130 is how `ane-sweep` ends when it is told to. KillMode=mixed tells the command alone, which ends what it started.
    """
    text = (
        f"[Unit]\nDescription={label}\n\n[Service]\nEnvironment=PYTHONUNBUFFERED=1\n"
        f"ExecStart={unit_files.systemd_command(command)}\nRestart=always\nRestartSec=10\nSuccessExitStatus=130\n"
        "KillMode=mixed\nTimeoutStopSec=20\n\n[Install]\nWantedBy=default.target\n"
    )
    return f"{label}.service", text


def launchd(label: str, command: Sequence[str], log: Path) -> tuple[str, str]:
    """Return (file name, text) of a launch agent (launchd.plist(5)).

    ProcessType Standard: macOS slows background jobs down, timings with them. caffeinate: a Mac that sleeps leaves its fleet.
    """
    values = {
        "Label": label,
        "ProgramArguments": ["/usr/bin/caffeinate", "-i", *command],
        "RunAtLoad": True,
        "KeepAlive": True,
        "ProcessType": "Standard",
        "StandardOutPath": str(log),
        "StandardErrorPath": str(log),
    }
    return f"{label}.plist", plistlib.dumps(values).decode()


KINDS: Mapping[str, Callable[[str, Sequence[str], Path], tuple[str, str]]] = {"systemd": systemd, "launchd": launchd}
NEXT = {
    "systemd": "copy it to ~/.config/systemd/user/, then: systemctl --user enable --now {label}.service; "
    "loginctl enable-linger keeps it running when you are logged out",
    "launchd": "copy it to ~/Library/LaunchAgents/, then: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{label}.plist",
}


def write(kind: str, folder: Path, label: str, command: Sequence[str], log: Path) -> Path:
    """Write one file, and make the folder of its log. Return the file's path. Raises ConfigError."""
    unit_files.check_words(command)
    name, text = KINDS[kind](label, command, log)
    for place in (folder, log.parent):
        place.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name
