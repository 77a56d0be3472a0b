"""`ane-sweep import FILE`: take an exported sweep in; known ones are merged"""

from ane_sweep.errors import ConfigError
from ane_sweep.folders import user_path
from ane_sweep.terminal import count, format_path, print_result, say
from ane_sweep.words import Parser


def import_(args: list[str]) -> int:
    parser = Parser(
        "import FILE [--json] [out=PATH]",
        "Take an exported sweep in. One that is known already is merged: the same sweep is there once. Of two exports the one "
        "of the later state of the sweep counts; of two that ended at the same moment, cell by cell, the record with the better "
        "status (ok, degraded, fallback, any other).",
        "ane-sweep import sweep.zip",
    )
    parser.add("words FILE", "what `ane-sweep export` wrote", nargs="*")
    parser.json("sweep, new, replaced, known, disputed (numbers of records), report", "two lines")
    parser.outputs()
    given = parser.read(args)
    if len(given.words) != 1:
        raise ConfigError("import takes one file: ane-sweep import FILE")
    from ane_sweep.bundles import bundle, merge
    from ane_sweep.report import page

    merged = merge.take_in(bundle.read(user_path(given.words[0])), given.out)
    report = format_path(merged.folder / page.HTML_NAME)
    numbers = {name: getattr(merged, name) for name in ("new", "replaced", "known", "disputed")}
    if merged.disputed and not given.json:
        say(
            f"doubt: {count(merged.disputed, 'record')} of this export and of one that ended at the same moment differ; "
            "of each cell the better status was kept"
        )
    text = f"{merged.folder.name}: {merged.new} new, {merged.replaced} replaced, {merged.known} known already"
    return print_result(given.json, f"{text}\nreport: {report}", sweep=merged.folder.name, **numbers, report=report)
