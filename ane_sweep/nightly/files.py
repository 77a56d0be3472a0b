"""Ready files for what starts a program at night: systemd, launchd, cron, a GitHub workflow.

Each runs the same command, with absolute paths: this Python, this outputs folder, the overrides asked for.
"""

import plistlib
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ane_sweep.bridge.user_files import open_user_file
from ane_sweep.errors import ConfigError

LABEL = "ane-sweep-nightly"


@dataclass(frozen=True)
class Job:
    """What to run, and when each day (hour, minute, local time)."""

    command: list[str]
    out: Path
    hour: int
    minute: int


def job(out: Path, at: str, overrides: list[str]) -> Job:
    """Raises ConfigError for a time that is none, and for words that a line of a unit or a crontab cannot hold."""
    if odd := [word for word in (*overrides, f"out={out}") if any(map(_breaks_a_line, word))]:
        reason = "line breaks, control characters and bytes that are no text cannot stand in these files"
        raise ConfigError([f"{word!r}: {reason}" for word in odd])
    hour, _, minute = at.partition(":")
    if not (hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60):
        raise ConfigError(f"at={at}: expected a time of day, as in at=02:30")
    command = [sys.executable, "-P", "-m", "ane_sweep", *(overrides or ["+sweep=nightly"]), f"out={out}"]
    return Job(command, out, int(hour), int(minute))


def systemd(job: Job) -> dict[str, str]:
    """A user service and its timer (systemd.service(5), systemd.timer(5))."""
    words = " ".join(_systemd_quoted(word) for word in job.command)
    service = (
        "[Unit]\nDescription=ane-sweep nightly\n\n[Service]\nType=oneshot\nEnvironment=PYTHONUNBUFFERED=1\n"
        f"ExecStart={words}\nKillMode=mixed\nTimeoutStopSec=60\n"
    )
    timer = (
        "[Unit]\nDescription=ane-sweep every night\n\n[Timer]\n"
        f"OnCalendar=*-*-* {job.hour:02d}:{job.minute:02d}:00\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n"
    )
    return {f"{LABEL}.service": service, f"{LABEL}.timer": timer}


def launchd(job: Job) -> dict[str, str]:
    """A launch agent (launchd.plist(5)). ProcessType Standard: macOS slows background jobs down, timings with them."""
    log = str(job.out / "nightly" / "launchd.log")
    values = {
        "Label": LABEL,
        "ProgramArguments": ["/usr/bin/caffeinate", "-i", *job.command],  # a Mac that falls asleep times nothing
        "StartCalendarInterval": {"Hour": job.hour, "Minute": job.minute},
        "ProcessType": "Standard",
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return {f"{LABEL}.plist": plistlib.dumps(values).decode()}


def cron(job: Job) -> dict[str, str]:
    """One line for `crontab -e`; a percent sign is a line end there unless escaped (crontab(5))."""
    line = shlex.join(job.command) + f" >> {shlex.quote(str(job.out / 'nightly' / 'cron.log'))} 2>&1"
    return {f"{LABEL}.cron": f"{job.minute} {job.hour} * * * " + line.replace("%", "\\%") + "\n"}


def github(job: Job) -> dict[str, str]:
    """A workflow for a runner of one's own: timings of a hosted one are another machine's each night."""
    overrides = shlex.join([word for word in job.command[4:] if not word.startswith("out=")])
    text = f"""name: {LABEL}
on:
  schedule:
    - cron: "{job.minute} {job.hour} * * *"  # UTC
  workflow_dispatch:
concurrency: {LABEL}
permissions:
  contents: read
jobs:
  nightly:
    runs-on: [self-hosted, macOS]
    timeout-minutes: 720
    steps:
      - uses: actions/checkout@v4
      - name: Install
        run: python3 -m venv .venv && .venv/bin/pip install -e '.[run]'
      - name: Tonight
        env:
          ANE_SWEEP_OUT: {_yaml_quoted(str(job.out))}
        run: {_yaml_quoted(f"caffeinate -i .venv/bin/ane-sweep {overrides}")}
      - name: Summary
        if: always()
        env:
          ANE_SWEEP_OUT: {_yaml_quoted(str(job.out))}
        run: cat "$ANE_SWEEP_OUT/nightly/latest.md" >> "$GITHUB_STEP_SUMMARY"
"""
    return {f"{LABEL}.yml": text}


KINDS: Mapping[str, Callable[[Job], dict[str, str]]] = {
    "systemd": systemd,
    "launchd": launchd,
    "cron": cron,
    "github": github,
}
NEXT = {
    "systemd": "copy both to ~/.config/systemd/user/, then: systemctl --user enable --now {label}.timer; "
    "loginctl enable-linger keeps it running when you are logged out",
    "launchd": "copy it to ~/Library/LaunchAgents/, then: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{label}.plist",
    "cron": "add its line with: crontab -e",
    "github": "copy it to .github/workflows/ of the repository whose self-hosted runner shall run it",
}


def write(kind: str, folder: Path, job: Job) -> list[Path]:
    """Write the files of one kind; the outputs' nightly folder is made too, as loggers need it. Raises ConfigError."""
    if kind not in KINDS:
        raise ConfigError(f"nightly write {kind}: unknown; choices: {', '.join(KINDS)}")
    folder.mkdir(parents=True, exist_ok=True)
    (job.out / "nightly").mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in KINDS[kind](job).items():
        with open_user_file(folder / name) as aside:
            aside.write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written


def _breaks_a_line(character: str) -> bool:
    return character < " " or character in "\x7f\x85\u2028\u2029" or "\ud800" <= character <= "\udfff"


def _systemd_quoted(word: str) -> str:
    """Quoted as systemd.service(5) reads command lines: specifiers (%) and variables ($) doubled."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = all(c.isalnum() or c in "-_./=+:,%$@" for c in word)
    return word if plain and word else f'"{word}"'


def _yaml_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
