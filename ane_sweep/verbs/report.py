"""`ane-sweep report [RUN] [--json|--markdown]`: a sweep's table, records or page; which op loses accuracy"""

from ane_sweep import engine, folders, terminal, words
from ane_sweep.bridge import record
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.machine import memory
from ane_sweep.report import document, drift, page, table
from ane_sweep.store import cache, runs
from ane_sweep.terminal import NOT_ALL_OK, OK

FILES = {"--html": page.as_html, "--markdown": page.as_markdown}


def report(args: list[str]) -> int:
    """See the module. `--html FILE` and `--markdown FILE` write; --json and --markdown alone print."""
    given = _parser().read(args)
    out = given.out
    if given.markdown and not _is_path(given.markdown):  # the flag alone prints: the word after it is the run
        if given.run is not None:
            raise ConfigError(f"{given.markdown}: one run at a time; --markdown {given.markdown}.md would write a file")
        given.run, given.markdown = given.markdown, ""
    files = {
        f"--{name}": folders.user_path(path)
        for name, path in (("html", given.html), ("markdown", given.markdown))
        if path
    }
    run = runs.find_run(out, given.run)
    records = record.read_records(run.folder)
    if given.drift:
        try:
            with cache.open_store(out) as store:
                drift.look(run.folder, records, store, memory.memory_budget(None))
        except StageError as error:
            terminal.say(f"error: {error}")
            return NOT_ALL_OK
        files = files or {"--html": run.folder / page.HTML_NAME}
    for flag, path in files.items():
        page.save(path, FILES[flag](document.Sweep.read(run.folder)))
        print(f"{flag.removeprefix('--')}: {path}")
    if files:
        return OK
    if given.json:
        print(table.as_json(records))
    elif given.markdown is not None:
        print(table.as_markdown(records))
    else:
        engine.show(run.folder, records)
    return OK


def _parser() -> words.Parser:
    parser = words.Parser(
        "report",
        "[RUN] [--json | --markdown] [--html FILE] [--markdown FILE] [--drift] [out=PATH]",
        "The table, the records or the report of a finished sweep. What it shows is no verdict: the exit code is 0.",
        "ane-sweep report last --html report.html",
        {NOT_ALL_OK: "--drift: the worst cell could not be run again"},
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
