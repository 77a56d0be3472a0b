"""`ane-sweep report [RUN ...] [--json|--markdown]`: a sweep's table, records or page; several machines side by side"""

from argparse import Namespace
from functools import partial
from pathlib import Path
from zipfile import is_zipfile

from ane_sweep import engine, folders, terminal, words
from ane_sweep.bridge import record
from ane_sweep.bundles import together
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.machine import memory
from ane_sweep.report import document, drift, page, screen
from ane_sweep.store import cache, runs
from ane_sweep.terminal import NOT_ALL_OK, OK, format_path

FILES = {"html": page.as_html, "markdown": page.as_markdown}


def report(args: list[str]) -> int:
    """Print or write a report. `--html FILE` and `--markdown FILE` write; --json, and --markdown without a file, print."""
    given = _parser().read(args)
    out = given.out
    if given.markdown and not _is_markdown(given.markdown):  # the flag alone prints: the word after it is a run
        given.runs, given.markdown = [given.markdown, *given.runs], ""
    asked = {"html": given.html, "markdown": given.markdown}
    files = {name: folders.user_path(path) for name, path in asked.items() if path}
    if len(given.runs) > 1 or (given.runs and together.is_bundle(given.runs[0])):
        return _of_files(out, given, files)
    run = runs.find_run(out, given.runs[0] if given.runs else None)
    records = record.read_records(run.folder)
    if given.drift:
        try:
            with cache.open_store(out) as store:
                drift.look(run.folder, records, store, memory.memory_budget(None))
        except StageError as error:
            terminal.say(f"error: {error}")
            return NOT_ALL_OK
        files = files or {"html": run.folder / page.HTML_NAME}
    for form, path in files.items():
        page.save(path, FILES[form](document.Sweep.read(run.folder)))
        print(f"{form}: {path}")
    if files:
        return OK
    if given.json:
        print(screen.as_json(records))
    elif given.markdown is not None:
        print(screen.as_markdown(records, runs=format_path(run.folder.parent)))
    else:
        engine.show(run.folder, records)
    return OK


def _of_files(out: Path, given: Namespace, files: dict[str, Path]) -> int:
    """Print or write the table of one bundle, or of the machines of several files or runs."""
    if given.drift:
        raise ConfigError("--drift runs the worst cell of a run of this machine again; name one run")
    if len(given.runs) == 1:
        found = together.records(out, given.runs[0])
        sweep, sections = document.Sweep(found), None
        texts = {"json": partial(screen.as_json, found), "markdown": partial(screen.as_markdown, found)}
        texts[""] = partial(screen.as_text, found, terminal.columns())
    else:
        machines = together.together(out, given.runs)
        sweep, sections = together.report(machines)
        forms = {"json": together.as_json, "markdown": together.as_markdown, "": together.as_text}
        texts = {form: partial(write, machines) for form, write in forms.items()}
    for form, path in files.items():
        page.save(path, FILES[form](sweep, sections))
        print(f"{form}: {path}")
    if not files:
        print(texts["json" if given.json else "markdown" if given.markdown is not None else ""](), end="")
    return OK


def _parser() -> words.Parser:
    parser = words.Parser(
        "report [RUN ...] [--json | --markdown] [--html FILE] [--markdown FILE] [--drift] [out=PATH]",
        "The table, the records or the report of a finished sweep, or of several machines: a row a cell, a column a machine. What it "
        "shows is no verdict: the exit code is 0.",
        "ane-sweep report last --html report.html",
        {NOT_ALL_OK: "--drift: the worst cell could not be run again"},
    )
    parser.add(
        "runs RUN",
        "a run's name, or last (default: last), or a file of `ane-sweep export`; several: machines side by side",
        nargs="*",
    )
    parser.add("--json", "print the records as one JSON array (default: a table)")
    markdown = "print the table as Markdown; FILE: write the report as Markdown"
    parser.add_argument("--markdown", nargs="?", const="", metavar="[FILE]", help=markdown)
    parser.add("--html FILE", "write the report as one page without network")
    parser.add("--drift", "run the worst cell beside its fp32 self: which op loses accuracy")
    parser.outputs()
    return parser


def _is_markdown(word: str) -> bool:
    """Return True for a file to write: it may exist, but is not a zip, as a bundle would be."""
    path = folders.user_path(word)
    return ("/" in word or "." in word) and path.suffix != ".zip" and not (path.is_file() and is_zipfile(path))
