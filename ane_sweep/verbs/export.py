"""`ane-sweep export [RUN] FILE`: a sweep as one file that merges into another store once"""

from ane_sweep.errors import ConfigError
from ane_sweep.folders import user_path
from ane_sweep.terminal import count, print_result
from ane_sweep.words import RUN, Parser


def export(args: list[str]) -> int:
    parser = Parser(
        "export [RUN] FILE [--json] [out=PATH]",
        "Write a finished sweep as one file that merges into another store once, however often it is imported: records, "
        "command and checksums, without artifacts, logs, paths, addresses, and names of hosts, workers and buckets.",
        "ane-sweep export last sweep.zip",
    )
    parser.add("words [RUN] FILE", f"{RUN}; and the file to write", nargs="*")
    parser.json("file, records (their number), sweep", "a line")
    parser.outputs()
    given = parser.read(args)
    words: list[str] = given.words
    if len(words) not in (1, 2):
        raise ConfigError("export takes a run (the last one, if it is left out) and a file: ane-sweep export RUN FILE")
    from ane_sweep.bundles import bundle
    from ane_sweep.store import runs

    if len(words) == 1 and (words[0] == "last" or words[0] in [run.stamp for run in runs.list_runs(given.out)]):
        raise ConfigError(
            f"export {words[0]}: that is a run; the file to write is missing: ane-sweep export {words[0]} FILE"
        )
    run = runs.find_run(given.out, words[0] if len(words) == 2 else None)
    number = bundle.export(run.folder, user_path(words[-1]), given.out)
    text = f"{words[-1]}: {count(number, 'record')} of {run.stamp}"
    return print_result(given.json, text, file=words[-1], records=number, sweep=run.stamp)
