"""The files that cells are scored on (score=...), found and read by the planner before anything starts."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ane_sweep import data, folders
from ane_sweep.bridge import examples
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.examples import Examples
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.plan import Source
from ane_sweep.errors import ConfigError

_ON_HUB = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?:(?P<file>[^:]+)")
Wanted = tuple[str, str, str | None]  # score, task, score_data


def read_examples(cells: Iterable[Cell]) -> dict[str, Examples]:
    """Return {cell key: the file that it is scored on}, with each file read once. Raises ConfigError for a faulty file."""
    found: dict[Wanted, Examples] = {}
    problems: list[str] = []
    kept: dict[str, Examples] = {}
    for cell in cells:
        if cell.score == "none" or (cell.score_data is None and cell.kind.sample is None):
            continue  # it needs no file, or is refused anyway
        wanted = cell.score, cell.model_settings.task, cell.score_data
        try:
            found[wanted] = found.get(wanted) or _read(wanted)
            kept[cell.key] = found[wanted]
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return kept


def refusal(cell: Cell, source: Source, known: Examples | None) -> str | None:
    """Return the reason why a model cannot be scored on that file, with a remedy, or None."""
    if known is None or cell.score == "none":
        return None
    if source.tokenizer is None:
        return (
            f"score={cell.score} reads text, and {cell.model} with {source.source} has no tokenizer; use weights=pretrained or a "
            "checkpoint folder with one, or model=tale or mood, which ship"
        )
    if cell.score != "accuracy":
        return None
    if not known.labels:
        return f"score=accuracy: {known.name} has no column label; use score=agreement, which needs none"
    has = examples.known_labels(source.arch)
    if strange := [label for label in known.labels if examples.find_output(label, has) is None]:
        return (
            f"score=accuracy: {known.name} has the label {strange[0][:40]!r}, and {cell.model} knows {', '.join(has[:12])} (or their "
            "numbers from 0); use another score_data=, or score=agreement, which needs no labels"
        )
    if len({examples.find_output(label, has) for label in known.labels}) == 1:
        return (
            f"score=accuracy: all rows of {known.name} have the label {known.labels[0][:40]!r}, and a constant answer gets them right; "
            "give a file with several"
        )
    return None


def params(cell: Cell, known: Examples) -> dict[str, object]:
    """Return the scoring parameters of a cell's tasks: the score, and the file's digest and form."""
    told: dict[str, object] = {"score": cell.score, "data": known.digest, "form": known.path.suffix, "rows": rows(cell)}
    if cell.kind.reads == "windows":
        told["stride"] = stride(cell)
    return told


def rows(cell: Cell) -> int:
    return cell.score_rows or examples.ROWS["perplexity" if cell.kind.reads == "windows" else cell.score]


def stride(cell: Cell) -> int:
    return cell.score_stride or max(1, cell.seq_len // 2)


def _read(wanted: Wanted) -> Examples:
    score, task, name = wanted
    if name is None:
        path = Path(data.__file__).parent / "texts" / str(KINDS[task].sample)
        name = path.name
    else:
        path = _find_file(name)
    try:
        labels: tuple[str, ...] = ()
        if KINDS[task].reads == "windows":
            examples.running_text(path, name)
        else:
            table = examples.rows(path, name)
            labels = tuple(dict.fromkeys(row.label for row in table if row.label is not None))
            texts = {text for row in table for text in (row.text, row.second) if text}
            if score == "embedding" and len(texts) < 3:
                raise ConfigError(
                    f"score_data={name}: {len(texts)} different texts; an order of their likeness needs 3 or more"
                )
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"score_data={name}: cannot be read: {error.strerror or error}") from None
    return Examples(name, path, digest, labels)


def _find_file(name: str) -> Path:
    """Return the path of a local file, or of a dataset from the hub. Raises ConfigError."""
    path = folders.user_path(name)
    if path.is_file():
        return path.resolve()
    if path.is_dir():
        raise ConfigError(f"score_data={name}: a folder; give a file in it ({', '.join(examples.SUFFIXES)})")
    if match := _ON_HUB.fullmatch(name):
        return _from_hub(name, match.groupdict())
    more = f"; of a dataset on the hub, name the file too: {name}:FILE" if re.fullmatch(r"[\w-]+/[\w.-]+", name) else ""
    raise ConfigError(f"score_data={name}: no such file{more}")


def _from_hub(name: str, parts: Mapping[str, str | None]) -> Path:
    """Return the file in the hub's local cache, downloaded if needed: it is small, and a plan reports its errors."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.constants import ENDPOINT

    repo, file, revision = str(parts["repo"]), str(parts["file"]), parts["revision"]
    cached = try_to_load_from_cache(repo, file, repo_type="dataset", revision=revision)
    if isinstance(cached, (str, os.PathLike)):
        return Path(cached)
    try:
        size = (
            get_hf_file_metadata(hf_hub_url(repo, file, repo_type="dataset", revision=revision), timeout=10).size or 0
        )
        if size <= examples.MOST_BYTES:
            return Path(hf_hub_download(repo, file, repo_type="dataset", revision=revision))
    except Exception as error:  # the hub client has no common base for "out of reach"
        why = f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"
        raise ConfigError(
            f"score_data={name}: not in the local cache, and {ENDPOINT} cannot give it ({why[:200]}); give a file of this machine, or "
            "leave it out for the one that ships"
        ) from None
    raise ConfigError(
        f"score_data={name}: {size / 1e6:.0f} MB, more than {examples.MOST_BYTES >> 20} MB; give a part of it"
    )
