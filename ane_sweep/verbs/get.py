"""`ane-sweep get RUN[:axis=value,...] DIR [--json]`: a cell's packages, and how to load them"""

from ane_sweep.folders import user_path
from ane_sweep.terminal import format_path, print_result
from ane_sweep.words import Parser


def get(args: list[str]) -> int:
    """Copy one cell's packages out of the cache. Raises ConfigError if the word selects several cells."""
    parser = Parser(
        "get RUN[:axis=value,...] DIR [--json] [out=PATH]",
        "The packages of one cell, its chunks in order, and a README.md that says how to load them in Python and in Swift. "
        "DIR is made, complete or not at all.",
        "ane-sweep get last:variant=split_einsum,chunks=2 ./minilm",
    )
    parser.add("run RUN", "a run's name, or last, with :axis=value,... for one of its cells")
    parser.add("folder DIR", "a folder that is not there yet, or empty")
    parser.json("folder, packages, sweep, cell", "a line a package")
    parser.outputs()
    given = parser.read(args)
    from ane_sweep.bundles import delivery
    from ane_sweep.compare import sides
    from ane_sweep.store.cache import open_store

    record = delivery.select_cell(sides.side(given.out, given.run).records, given.run)
    target = user_path(given.folder)
    with open_store(given.out, writes=False) as store:
        packages = delivery.deliver(record, store, target)
    how = f"how to load {'it' if len(packages) == 1 else 'them'}: {format_path(target / 'README.md')}"
    text, names = "\n".join([*map(format_path, packages), how]), [path.name for path in packages]
    return print_result(given.json, text, folder=str(target), packages=names, sweep=record.sweep, cell=record.cell)
