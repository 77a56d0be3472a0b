"""`ane-sweep chunk MODEL [COUNT] [--at PLACES] -o FOLDER`: any package as a chain of packages, without a sweep"""

import re
from pathlib import Path
from typing import Any

from ane_sweep.errors import ConfigError, StageError
from ane_sweep.mil import cut_words
from ane_sweep.mil.package import program_paths
from ane_sweep.terminal import NOT_ALL_OK, format_path, size
from ane_sweep.verbs import _workers
from ane_sweep.words import Parser

_MOST = 1000
_FACTS = ("chunk_bytes", "boundary_bytes", "cut_behind", "notes")
_NUMBER = re.compile(r"0?\.\d+")


def chunk(args: list[str]) -> int:
    """Write the chunks of a package to a folder, and print their sizes."""
    parser = Parser(
        "chunk",
        "MODEL [COUNT] -o FOLDER [--at PLACE,...] [--by bytes|layers] [--own none|embeddings|head|both] [--pipeline] [--force] [--json]",
        "Cut any ML Program into a chain of COUNT programs that compute the same, in a fresh process. A package of up to 60 MB is "
        "also run, whole and in chunks, and their outputs are compared bit by bit.",
        "ane-sweep chunk model.mlpackage 3 -o chunks",
        {NOT_ALL_OK: "it could not be cut so, or its chunks compute something else; nothing was written"},
    )
    parser.add_argument("model", metavar="MODEL", help="a .mlpackage of an ML Program")
    parser.add_argument("count", metavar="COUNT", nargs="?", help="how many chunks, from 2 (without --at)")
    parser.add_argument("--at", metavar="PLACE,...", help=f"where to cut, in place of COUNT: {cut_words.FORMS}")
    _workers.add_shared_options(parser, "the folder to write: chunk_01.mlpackage and on")
    parser.add_argument(
        "--by", choices=("bytes", "layers"), default="bytes", metavar="bytes|layers",
        help="what is shared out evenly (default: bytes)",
    )  # fmt: skip
    parser.add_argument(
        "--own", choices=("none", "embeddings", "head", "both"), default="none", metavar="none|embeddings|head|both",
        help="parts that are chunks of their own, among the count (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--pipeline", action="store_true", help="one Core ML pipeline, model.mlpackage (default: a package a chunk)"
    )
    parser.json(
        "path, chunks (each with path, bytes), chunk_bytes, boundary_bytes, cut_behind (with --at), notes, equal, seconds",
        "lines of text",
    )
    given = parser.read(args)
    cuts = _cuts(given)
    target = _workers.parse_target(given.output, "chunk")
    if target.suffix == ".mlpackage":
        raise ConfigError(f"-o {given.output}: chunks are several packages; give a folder for them")
    _workers.check_target(target, given.force)
    asked = {
        "count": len(cuts) + 1 if cuts else int(given.count), "by": given.by, "own": given.own,
        "pipeline": "coreml" if given.pipeline else "manual", **({"cuts": cuts} if cuts else {}),
    }  # fmt: skip
    with _workers.open_bench(given.model, target) as bench:
        try:
            found = _cut(bench, asked, target)
        except StageError as error:
            return _workers.report_failure(error)
    return _workers.print_result(found, _lines(found), given.json)


def _cuts(given: Any) -> list[Any]:
    """Return the places of --at, as the axis `cuts` has them; none if a COUNT sets their number. Raises ConfigError."""
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


def _cut(bench: _workers.Bench, asked: dict[str, Any], target: Path) -> dict[str, Any]:
    result, out = bench.stage("chunk", asked, {"program": bench.program})
    small = _workers.size_of(bench.package) <= _workers.SMALL_BYTES
    same = _same(bench, out) if small else None
    if same is False:
        raise StageError(
            f"{bench.package}: its chunks compute something else than the whole; that is a mistake of ours"
        )
    _workers.clean(out)
    chunks = [{"path": str(target / path.name), "bytes": _workers.size_of(path)} for path in program_paths(out)]
    _workers.put_in_place(out, target, bench)
    facts = {name: result.facts.get(name) for name in _FACTS if name in result.facts}
    return {"path": str(target), "chunks": chunks, **facts, "equal": same, "seconds": result.seconds}


def _same(bench: _workers.Bench, chunks: Path) -> bool:
    """Return True if the package and its chunks give the same bits."""
    reference = bench.reference()
    whole, parts = (bench.score(program, reference)[1] / "outputs.npz" for program in (bench.program, chunks))
    return whole.read_bytes() == parts.read_bytes()


def _lines(found: dict[str, Any]) -> list[str]:
    rows = [f"  {format_path(Path(one['path']))}  {size(one['bytes'])}" for one in found["chunks"]]
    largest, share = max(found["chunk_bytes"]), sum(found["chunk_bytes"]) / len(found["chunk_bytes"])
    uneven = f", the largest {largest / share:.1f} times an equal share" if largest > 1.5 * share else ""
    weights, handed = (", ".join(map(size, found[name])) for name in ("chunk_bytes", "boundary_bytes"))
    told = "the same bits as the whole" if found["equal"] else "not compared (a package of more than 60 MB)"
    behind = [f"  cut behind {', '.join(found['cut_behind'])}"] if "cut_behind" in found else []
    behind += [f"  {note}" for note in found.get("notes", []) if note.startswith("cuts:")]
    return [*rows, *behind, f"  weights {weights}{uneven}", f"  handed over {handed}", f"  outputs {told}"]
