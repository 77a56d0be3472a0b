"""Files that start a sweep every night: for systemd, launchd, cron and GitHub workflows.

Each runs the same command, with absolute paths: this Python, this outputs folder, the given overrides. A workflow runs
elsewhere and has no paths.
"""

import contextlib
import json
import plistlib
import re
import shlex
import sys
import tomllib
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from ane_sweep import outward
from ane_sweep.bridge.disk import open_user_file
from ane_sweep.errors import ConfigError
from ane_sweep.machine import unit_files

LABEL = "ane-sweep-nightly"
_HOSTED = ("latency.repeats=auto", "nightly.cache_gb=4")  # no CPU times there, and what GitHub's cache holds
_STORE_WITH_USER = re.compile(r"store=['\"]?(?:sftp|ssh|smb)://[^\s/:@?#]+@[^@?#]*")  # sftp://ada@nas.local/x
_SECRET = (
    "a password or token in an address would stand in a file that others read; of an MLflow server it comes from "
    "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, any tracking address from MLFLOW_TRACKING_URI, a store's from where "
    "`ane-sweep help fleet` says, all in the environment of what starts the night"
)


@dataclass(frozen=True)
class Job:
    """A command, and the time of day at which it starts (hour, minute, local time).

    folder   where its files are written; None: not known yet
    """

    command: list[str]
    out: Path
    hour: int
    minute: int
    folder: Path | None = None


def job(out: Path, at: str, overrides: list[str]) -> Job:
    """Return the nightly job. Raises ConfigError for a malformed time, for words that no unit or crontab line can
    contain, and for an address with a password, as these files are readable by others and kept with code.
    """
    unit_files.check_words([*overrides, f"out={out}"])
    plain = [word for word in overrides if not _STORE_WITH_USER.fullmatch(word)]
    if secret := [hidden for word in plain if (hidden := outward.mask_credentials(word)) != word]:
        raise ConfigError([f"{word}: {_SECRET}" for word in secret])
    hour, _, minute = at.partition(":")
    if not (hour.isdecimal() and minute.isdecimal() and int(hour) < 24 and int(minute) < 60):
        raise ConfigError(f"at={at}: expected a time of day, as in at=02:30")
    command = [sys.executable, "-P", "-m", "ane_sweep", *(overrides or ["+sweep=nightly"]), f"out={out}"]
    return Job(command, out, int(hour), int(minute))


def systemd(job: Job) -> dict[str, str]:
    """Return a user service and its timer (systemd.service(5), systemd.timer(5))."""
    service = (
        "[Unit]\nDescription=ane-sweep nightly\n\n[Service]\nType=oneshot\nEnvironment=PYTHONUNBUFFERED=1\n"
        f"ExecStart={unit_files.systemd_command(job.command)}\nKillMode=mixed\nTimeoutStopSec=60\n"
    )
    timer = (
        "[Unit]\nDescription=ane-sweep every night\n\n[Timer]\n"
        f"OnCalendar=*-*-* {job.hour:02d}:{job.minute:02d}:00\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n"
    )
    return {f"{LABEL}.service": service, f"{LABEL}.timer": timer}


def launchd(job: Job) -> dict[str, str]:
    """Return a launch agent (launchd.plist(5)). ProcessType Standard: macOS slows background jobs down, timings with them."""
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
    """Return one line for `crontab -e`; a percent sign is escaped, as it would end the line (crontab(5))."""
    line = shlex.join(job.command) + f" >> {shlex.quote(str(job.out / 'nightly' / 'cron.log'))} 2>&1"
    return {f"{LABEL}.cron": f"{job.minute} {job.hour} * * * " + line.replace("%", "\\%") + "\n"}


def github(job: Job) -> dict[str, str]:
    """Return a workflow for any repository, on a runner of GitHub's: estimates are the same there, timings would vary.

    It has no path of this machine: the outputs lie in the checkout there, and a cache keeps them for the next night.
    """
    words = [word for word in job.command[4:] if not word.startswith("out=")]
    given = {word.partition("=")[0] for word in words}
    words += [word for word in _HOSTED if word.partition("=")[0] not in given]
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
    runs-on: ubuntu-latest  # estimates need no Mac; [self-hosted, macOS] times on a Mac of yours, without {_HOSTED[0]}
    timeout-minutes: 350
    env:
      PIP_EXTRA_INDEX_URL: https://download.pytorch.org/whl/cpu  # PyTorch without CUDA
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - name: Install
        run: {_yaml_quoted(shlex.join(["pip", "install", *_requirement(job.folder)]))}
      - name: Earlier nights
        uses: actions/cache/restore@v4
        with:
          path: outputs
          key: {LABEL}-${{{{ github.run_id }}}}
          restore-keys: {LABEL}-
      - name: Tonight
        run: {_yaml_quoted(f"ane-sweep {shlex.join(words)}")}
      - name: Keep the nights
        if: always()
        uses: actions/cache/save@v4
        with:
          path: outputs
          key: {LABEL}-${{{{ github.run_id }}}}
      - name: Summary
        if: always()
        run: cat outputs/nightly/latest.md >> "$GITHUB_STEP_SUMMARY"
"""
    return {f"{LABEL}.yml": text}


def _requirement(folder: Path | None) -> list[str]:
    """Return what pip installs: the checkout of ane-sweep in whose .github the workflow is written, else this install's
    source, git or PyPI.
    """
    if folder is not None and _is_ours(folder):
        return ["-e", ".[run]"]
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError, KeyError):
        source = json.loads(metadata.distribution("ane-sweep").read_text("direct_url.json") or "{}")
        if source["vcs_info"]["vcs"] == "git" and "://" in source["url"] and not source["url"].startswith("file:"):
            commit = source["vcs_info"]["commit_id"]
            return [f"ane-sweep[run] @ git+{outward.mask_credentials(source['url'])}@{commit}"]
    return ["ane-sweep[run]"]


def _is_ours(folder: Path) -> bool:
    """Return True for .github/workflows of a checkout of ane-sweep, whose workflows run there and nowhere else."""
    workflows = folder.resolve()
    github, root = workflows.parent, workflows.parent.parent
    with contextlib.suppress(OSError, tomllib.TOMLDecodeError, KeyError):
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
        return (github.name, workflows.name, project) == (".github", "workflows", "ane-sweep")
    return False


def next_step(kind: str, folder: Path) -> str:
    """Return what to do with the files of a kind once they are written in a folder."""
    if kind == "github" and _is_ours(folder):
        return "commit it: it installs this checkout, and works in this repository alone"
    return NEXT[kind].format(label=LABEL)


KINDS = {"systemd": systemd, "launchd": launchd, "cron": cron, "github": github}
NEXT = {
    "systemd": "copy both to ~/.config/systemd/user/, then: systemctl --user enable --now {label}.timer; "
    "loginctl enable-linger keeps it running when you are logged out",
    "launchd": "copy it to ~/Library/LaunchAgents/, then: launchctl bootstrap gui/$(id -u) ~/Library/LaunchAgents/{label}.plist",
    "cron": "add its line with: crontab -e",
    "github": "copy it to .github/workflows/ of any repository",
}


def write(kind: str, folder: Path, job: Job) -> list[Path]:
    """Write the files of one kind, and make the outputs' nightly folder where a log goes there. Raises ConfigError."""
    if kind not in KINDS:
        raise ConfigError(f"nightly write {kind}: unknown; choices: {', '.join(KINDS)}")
    folder.mkdir(parents=True, exist_ok=True)
    if kind != "github":
        (job.out / "nightly").mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in KINDS[kind](replace(job, folder=folder)).items():
        with open_user_file(folder / name) as aside:
            aside.write_text(text, encoding="utf-8")
        written.append(folder / name)
    return written


def _yaml_quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
