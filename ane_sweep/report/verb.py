"""`ane-sweep report [RUN]`: the table, the records, or the report of a finished sweep."""

from pathlib import Path
from typing import Any

from ane_sweep import command, record, runs, sweep
from ane_sweep.errors import AneSweepError, ConfigError, StageError
from ane_sweep.report import document, drift, page, table

FILES = {"--html": page.as_html, "--markdown": page.as_markdown}


def report(args: list[str]) -> int:
    """See the module. `--html FILE` and `--markdown FILE` write; --json and --markdown alone print."""
    files, rest = _files(args)
    options, words = command.split(rest, flags=("--json", "--markdown", "--drift"))
    out = command.outputs_folder(options.get("out"))
    run = runs.find_run(out, words[0] if words else None)
    records = record.read_records(run.folder)
    if "--drift" in options:
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
    if "--json" in options:
        print(table.as_json(records))
    elif "--markdown" in options:
        print(table.as_markdown(records))
    else:
        sweep.show(run.folder, records)
    return command.OK


def _files(args: list[str]) -> tuple[dict[str, Path], list[str]]:
    """What is to be written where, and the other words. A word after --markdown is a file if it looks like a path."""
    files, rest, words = {}, [], list(args)
    while words:
        word = words.pop(0)
        flag, equals, value = word.partition("=")
        if flag not in FILES or (flag == "--markdown" and not equals and not (words and _is_path(words[0]))):
            rest.append(word)
            continue
        if not equals and not words:
            raise ConfigError(f"{flag} needs a file: {flag} report.html")
        files[flag] = Path(value if equals else words.pop(0)).expanduser()
    return files, rest


def _is_path(word: str) -> bool:
    return ("/" in word or "." in word) and not word.startswith("out=")


def look_where_called_for(folder: Path, records: list[Any], store: Any) -> None:
    """At the end of a sweep: drift of the worst cell if that is under its gate and small. Trouble is a doubt, no more."""
    if not drift.called_for(records):
        return
    try:
        drift.look(folder, records, store, command.memory_budget(None), drift.SMALL_TIMEOUT_S)
    except AneSweepError as error:
        command.say(f"doubt: {error}")
