"""`ane-sweep report [RUN]`: the table, the records, or the report of a finished sweep."""

from pathlib import Path
from typing import Any

from ane_sweep import command, record, runs, sweep
from ane_sweep.errors import AneSweepError, ConfigError, StageError
from ane_sweep.report import document, drift, page, table

FILES = {"--html": page.as_html, "--markdown": page.as_markdown}


def report(args: list[str]) -> int:
    """See the module. `--html FILE` and `--markdown FILE` write; --json and --markdown alone print."""
    given = _parser().read(args)
    out = given.out
    if given.markdown and not _is_path(given.markdown):  # the flag alone prints: the word after it is the run
        if given.run is not None:
            raise ConfigError(f"{given.markdown}: one run at a time; --markdown {given.markdown}.md would write a file")
        given.run, given.markdown = given.markdown, ""
    files = {f"--{name}": command.user_path(path) for name, path in (("html", given.html), ("markdown", given.markdown)) if path}
    run = runs.find_run(out, given.run)
    records = record.read_records(run.folder)
    if given.drift:
        try:
            with command.open_store(out) as store:
                drift.look(run.folder, records, store, command.memory_budget(None))
        except StageError as error:
            command.say(f"error: {error}")
            return command.NOT_ALL_OK
        files = files or {"--html": run.folder / page.HTML_NAME}
    for flag, path in files.items():
        page.save(path, FILES[flag](document.Sweep.read(run.folder)))
        print(f"{flag.removeprefix('--')}: {path}")
    if files:
        return command.OK
    if given.json:
        print(table.as_json(records))
    elif given.markdown is not None:
        print(table.as_markdown(records))
    else:
        sweep.show(run.folder, records)
    return command.OK


def _parser() -> command.Parser:
    parser = command.Parser(
        "report",
        "[RUN] [--json | --markdown] [--html FILE] [--markdown FILE] [--drift] [out=PATH]",
        "The table, the records or the report of a finished sweep. What it shows is no verdict: the exit code is 0.",
        "ane-sweep report last --html report.html",
        {command.NOT_ALL_OK: "--drift: the worst cell could not be run again"},
    )
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's name, or last (default: last)")
    parser.add_argument("--json", action="store_true", help="print the records as one JSON array (default: a table)")
    parser.add_argument(
        "--markdown",
        nargs="?",
        const="",
        metavar="[FILE]",
        help="print the table as Markdown; FILE: write the report as Markdown",
    )
    parser.add_argument("--html", metavar="FILE", help="write the report as one page without network")
    parser.add_argument(
        "--drift", action="store_true", help="run the worst cell beside its fp32 self: which op loses accuracy"
    )
    parser.outputs()
    return parser


def _is_path(word: str) -> bool:
    return "/" in word or "." in word


def look_where_called_for(folder: Path, records: list[Any], store: Any) -> None:
    """At the end of a sweep: drift of the worst cell if that is under its gate and small. Trouble is a doubt, no more."""
    if not drift.called_for(records):
        return
    try:
        drift.look(folder, records, store, command.memory_budget(None), drift.SMALL_TIMEOUT_S)
    except AneSweepError as error:
        command.say(f"doubt: {error}")
