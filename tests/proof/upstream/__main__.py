"""`python -m tests.proof.upstream`: see the package's docstring. Exit 0: the bar is met and no exclusion has healed."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from ane_sweep.terminal import NOT_ALL_OK, OK
from tests.proof.upstream import children, extras, plugin, report, suites, verdict


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.upstream", description=__doc__)
    parser.add_argument("names", nargs="*", help="suites or test files; all suites where none is given")
    parser.add_argument("--sample", type=int, default=1, metavar="N", help="items of each test function (default 1)")
    parser.add_argument("--whole", action="store_true", help="every item")
    parser.add_argument("--seed", type=int, default=0, help="draws the sample and the data of each item (default 0)")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="the K-th of N parts, to share a whole run")
    parser.add_argument(
        "--backward", action="store_true", help="each op in every opset, as RUN_BACKWARD_COMPATIBILITY=1"
    )
    parser.add_argument(
        "--precision", choices=("fp16", "fp32"), default="fp16", help="of graph-pass tests (default fp16)"
    )
    parser.add_argument("--out", type=Path, default=Path("outputs") / "upstream", help="where results are kept")
    parser.add_argument("--list", action="store_true", help="show the suites and their files")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    options = arguments(words)
    chosen = suites.resolve(options.names)
    if options.list:
        for name, files in chosen.items():
            print(name, *(f"  {file.relative_to(suites.folder()).as_posix()}" for file in files), sep="\n")
        return OK
    options.out.mkdir(parents=True, exist_ok=True)
    paths = extras.ensure(options.out.resolve() / "extras")
    shard, shards = map(int, options.shard.split("/"))
    settings = plugin.Settings(
        results="",
        root=str(suites.folder()),
        sample=None if options.whole else options.sample,
        seed=options.seed,
        precision=options.precision,
        shard=(shard - 1, shards),
    )
    tally = report.Tally()
    with open(options.out / "items.jsonl", "w", encoding="utf-8") as log:
        for name, files in chosen.items():
            start = time.monotonic()
            entries = suite(files, settings, paths, tally, backward=options.backward)
            print(f"{name}: {len(entries)} items in {time.monotonic() - start:.0f} s", flush=True)
            log.writelines(json.dumps(entry) + "\n" for entry in entries)
    print(report.text(tally))
    return OK if tally.is_good else NOT_ALL_OK


def suite(
    files: list[Path], settings: plugin.Settings, paths: list[Path], tally: report.Tally, *, backward: bool = False
) -> list[dict[str, Any]]:
    """Run a suite, then what failed again as a control; adds to `tally` and returns the items with their causes."""
    ended = children.run(files, settings, paths, backward=backward)
    failed = {node: item for node, item in ended.items.items() if item["outcome"] in ("failed", "crashed")}
    controls: dict[str, dict[str, Any]] = {}
    if failed:
        names = {node.partition("::")[0] for node in failed}
        again = [file for file in files if file.relative_to(settings.root).as_posix() in names]
        only = plugin.Settings(**{**vars(settings), "control": True, "only": sorted(failed)})
        controls = children.run(again, only, paths, backward=backward).items
    for node, item in ended.items.items():
        cause = verdict.settle(item, controls.get(node), plugin.REACHED) if node in failed else None
        item["cause"] = cause
        tally.add(item, cause)
    tally.errors += ended.errors
    return list(ended.items.values())


if __name__ == "__main__":
    sys.exit(main())
