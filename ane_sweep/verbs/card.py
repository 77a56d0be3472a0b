"""`ane-sweep card RUN[:axis=value,...]|PACKAGE [-o FILE] [--manifest FILE]`: a model card of a cell or a package"""

import json
import shlex
from dataclasses import asdict
from pathlib import Path

from ane_sweep.bridge import disk
from ane_sweep.bundles import delivery
from ane_sweep.compare import sides
from ane_sweep.errors import AneSweepError, ConfigError
from ane_sweep.folders import user_path
from ane_sweep.machine.calibrated import find_measurements
from ane_sweep.mil import package
from ane_sweep.outward import make_public
from ane_sweep.placement import judge
from ane_sweep.placement.chips import canonical
from ane_sweep.report import card as cards
from ane_sweep.store import runs
from ane_sweep.terminal import format_path, print_result
from ane_sweep.words import Parser

SUFFIXES = (".mlpackage", ".mlmodelc")


def card(args: list[str]) -> int:
    """Write or print a card. Raises ConfigError for several cells, PackageError for an unreadable package."""
    parser = Parser(
        "card RUN[:axis=value,...]|PACKAGE [-o FILE] [--manifest FILE] [--chip m4] [--json] [out=PATH]",
        "A model card in Markdown, with the front matter of the Hugging Face hub: how a cell or package was made, its sizes, accuracy, "
        "placement and estimates by chip, versions, and the command that makes it again.",
        "ane-sweep card last:variant=split_einsum,chunks=2 -o README.md",
    )
    parser.add(
        "subject CELL", "RUN or PACKAGE: a run's name, or last, with :axis=value,...; or a .mlpackage or .mlmodelc"
    )
    parser.add("-o FILE", "write the Markdown there (default: print it)", user_path)
    parser.add("--manifest FILE", "write the same as JSON there", user_path)
    parser.add(
        "--chip NAME,...",
        "only these; of a run, those that it predicted for (default: m4 of a package, all of a run)",
        lambda text: [canonical(name) for name in text.split(",")],
    )
    parser.json("card, manifest", "Markdown")
    parser.outputs()
    given = parser.read(args)
    if given.subject.rstrip("/").endswith(SUFFIXES):
        made = _of_package(Path(given.subject), given.chip or ["m4"])
    else:
        made = _of_cell(given.out, given.subject, given.chip or [])
    text, manifest = cards.to_markdown(made), json.dumps(asdict(made), indent=1) + "\n"
    written = {path: body for path, body in ((given.o, text), (given.manifest, manifest)) if path}
    for path, body in written.items():
        _write(path, body)
    shown = text if not given.o else "\n".join(f"written: {format_path(path)}" for path in written)
    return print_result(given.json, shown.rstrip("\n"), card=text, manifest=asdict(made))


def _of_cell(out: Path, word: str, chips: list[str]) -> cards.Card:
    record = delivery.select_cell(sides.side(out, word).records, word)
    has = list(dict.fromkeys(one.chip for one in record.placed("predicted") if one.chip))
    for chip in chips:
        if chip not in has:
            raise ConfigError(
                f"--chip {chip}: {word} has no prediction for it; it has: {', '.join(has) or 'none'}. "
                f"Run its sweep again with chips=[{','.join([*has, chip])}]"
            )
    told = disk.read_json(runs.find_run(out, record.sweep).folder / "run.json") or {}
    command = told.get("command")
    axes = [str(one) for one in told.get("axes") or []]
    words = cards.list_words(record, [str(one) for one in command], axes) if isinstance(command, list) else []
    return cards.describe_cell(record, [make_public(shlex.quote(one)) for one in words], chips)


def _of_package(path: Path, chips: list[str]) -> cards.Card:
    verdicts = [judge.judge(path, chip=chip, measured=find_measurements) for chip in chips]
    metadata = package.read(path, kinds=("mlProgram", "pipeline")).spec.description.metadata
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return cards.describe_package(path.name, size, dict(metadata.userDefined), verdicts, metadata.license)


def _write(path: Path, text: str) -> None:
    try:
        with disk.open_user_file(path) as aside:
            aside.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AneSweepError(f"{path}: cannot be written ({error.strerror})") from error
