"""`ane-sweep chunk MODEL [COUNT] [--at PLACES] -o FOLDER`: any package as a chain of packages, without a sweep"""

import argparse
import re
import shutil
from functools import reduce
from pathlib import Path
from typing import TypedDict

from ane_sweep.bridge import conversion
from ane_sweep.errors import ConfigError, StageError
from ane_sweep.fix import output
from ane_sweep.mil import cut_words
from ane_sweep.mil.package import program_paths
from ane_sweep.terminal import NOT_ALL_OK, format_path, size
from ane_sweep.verbs import _workers
from ane_sweep.words import Parser

_MOST = 1000
# A sweep's words for what this verb is told otherwise, in the reason of a failed stage.
_WORDS = (
    (r"cuts=\[([^\]]*)\]", r"--at \1"), (r"\bown_chunks=", "--own "), ("pipeline=coreml", "--pipeline"),
    ("pipeline=manual", "leave --pipeline out"), (r"\bchunks=(\d+)", r"\1 chunks"),
)  # fmt: skip
_NUMBER = re.compile(r"0?\.\d+")


class _Facts(TypedDict, total=False):
    chunk_bytes: list[int]
    boundary_bytes: list[int]
    cut_behind: list[str]
    notes: list[str]


def chunk(args: list[str]) -> int:
    parser = Parser(
        "chunk MODEL [COUNT] -o FOLDER [--at PLACE,...] [--by bytes|layers] [--own none|embeddings|head|both] "
        "[--pipeline] [--force] [--json]",
        "Cut any ML Program into a chain of COUNT programs that compute the same bits, in a fresh process, and prove it: each op and "
        "each weight of the chain is compared with the whole's.",
        "ane-sweep chunk model.mlpackage 3 -o chunks",
        {NOT_ALL_OK: "it could not be cut so, or its chunks compute something else; nothing was written"},
    )
    parser.add("model MODEL", "a .mlpackage of an ML Program")
    parser.add("count COUNT", "how many chunks, from 2 (without --at)", nargs="?")
    parser.add("--at PLACE,...", f"where to cut, in place of COUNT: {cut_words.FORMS}")
    _workers.add_shared_options(parser, "the folder to write: chunk_01.mlpackage and on")
    parser.add("--by bytes|layers", "what is shared out evenly", default="bytes")
    own = "parts that are chunks of their own, among the count"
    parser.add("--own none|embeddings|head|both", own, default="none")
    parser.add("--pipeline", "one Core ML pipeline, model.mlpackage (default: a package a chunk)")
    parser.json(
        "path, chunks (each with path, bytes), chunk_bytes, boundary_bytes, cut_behind (with --at), notes, equal, seconds",
        "lines of text",
    )
    given = parser.read(args)
    cuts = _cuts(given)
    target = _workers.parse_target(given, "chunk", False, "chunks are several packages; give a folder for them")
    params = {
        "count": len(cuts) + 1 if cuts else int(given.count), "by": given.by, "own": given.own,
        "pipeline": "coreml" if given.pipeline else "manual", **({"cuts": cuts} if cuts else {}),
    }  # fmt: skip
    return _workers.write_result(given, target, lambda bench: _cut(bench, params, target))


def _cuts(given: argparse.Namespace) -> list[float | str]:
    """Return the places in --at, in the form of the axis `cuts`; none if COUNT is given. Raises ConfigError."""
    if given.at is None:
        if given.count is None:
            raise ConfigError(
                f"chunk: how many? COUNT, a number from 2 to {_MOST}, or --at PLACE,...: {cut_words.FORMS}"
            )
        if not given.count.isdecimal() or not 2 <= int(given.count) <= _MOST:
            raise ConfigError(f"{given.count}: expected how many chunks, a number from 2 to {_MOST}")
        return []
    words = [float(word) if _NUMBER.fullmatch(word) else word for word in given.at.split(",")]
    if problem := cut_words.find_problem("--at", words):
        raise ConfigError(problem)
    if given.own != "none" or given.by != "bytes":
        raise ConfigError("--at says all cuts; leave --own and --by out")
    if given.count not in (None, str(len(words) + 1)):
        raise ConfigError(f"{given.count} chunks --at {given.at}: those places make {len(words) + 1}; leave COUNT out")
    return words


def _cut(bench: _workers.Bench, params: dict[str, object], target: Path) -> _workers.Result:
    try:
        result, out = bench.stage("chunk", params, {"program": bench.program})
    except StageError as error:
        raise StageError(reduce(lambda text, pair: re.sub(pair[0], pair[1], text), _WORDS, str(error))) from error
    for path in out.iterdir():
        if path.suffix != ".mlpackage":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    sizes = {target / path.name: _workers.size_of(path) for path in program_paths(out)}
    output.put_in_place(out, target)
    facts = conversion.convert(result.facts, _Facts)
    chunks = [{"path": str(path), "bytes": number} for path, number in sizes.items()]
    weights, handed = (", ".join(map(size, numbers)) for numbers in (facts["chunk_bytes"], facts["boundary_bytes"]))
    lines = [
        *(f"  {format_path(path)}  {size(number)}" for path, number in sizes.items()),
        *([f"  cut behind {', '.join(facts['cut_behind'])}"] if "cut_behind" in facts else []),
        *(f"  {note}" for note in facts.get("notes", [])),
        f"  weights {weights}",
        f"  handed over {handed}",
        "  the same ops and weights as the whole's, each compared: it computes the same bits",
    ]
    return lines, {"path": str(target), "chunks": chunks, **facts, "equal": True, "seconds": result.seconds}
