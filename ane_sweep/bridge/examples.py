"""The file that a model is scored on (score=...): the planner reads it to refuse bad files, and the task reads it to
score.

.txt                        plain text; one example a line if the score needs examples
.csv .tsv .jsonl .parquet   columns text (or sentence, review, content) and label; for pairs:
                            sentence1, sentence2, score
"""

import csv
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import SupportsFloat

from ane_sweep.errors import ConfigError

SCORES = ("perplexity", "accuracy", "agreement", "embedding")
ROWS = {"perplexity": 32, "accuracy": 256, "agreement": 256, "embedding": 128}  # where score_rows says nothing
SUFFIXES = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")
MOST_BYTES = 64 << 20
TEXT, FIRST, SECOND = ("text", "sentence", "review", "content"), ("sentence1", "text1"), ("sentence2", "text2")
LABEL, GRADE = ("label", "labels"), ("score", "grade", "similarity")


@dataclass(frozen=True)
class Row:
    """One example: a text or a pair of texts, with its label or the pair's similarity if the file has them."""

    text: str
    second: str | None = None
    label: str | None = None
    grade: float | None = None


@dataclass(frozen=True)
class Examples:
    """The examples of a file: `name` is for people, `labels` holds all labels of its rows, in order."""

    name: str
    path: Path
    digest: str
    labels: tuple[str, ...]


def rows(path: Path, name: str) -> list[Row]:
    """Return all examples of a file. Raises ConfigError with the problem and its line."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(
            f"score_data={name}: a file that ends in {path.suffix or 'nothing'}; choices: {', '.join(SUFFIXES)}"
        )
    if path.stat().st_size > MOST_BYTES:
        raise ConfigError(f"score_data={name}: more than {MOST_BYTES >> 20} MB; give a part of it")
    if path.suffix == ".parquet":
        found = _of_columns(_parquet(path, name), name)
    elif path.suffix == ".txt":
        found = [Row(line) for line in text(path, name).splitlines() if line.strip()]
    else:
        read = _json_lines if path.suffix == ".jsonl" else _separated
        found = _of_columns(read(text(path, name), name, path.suffix), name)
    if not found:
        raise ConfigError(f"score_data={name}: no example in it; a file of scores holds at least one")
    return found


def text(path: Path, name: str) -> str:
    """Read a text file. Raises ConfigError for a file that is empty or not UTF-8."""
    try:
        said = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"score_data={name}: byte {error.start} is no UTF-8; save it as UTF-8 (iconv -t utf-8, or an editor's `save as`)"
        ) from None
    if not said.strip():
        raise ConfigError(f"score_data={name}: the file is empty; give one with text")
    return said


def running_text(path: Path, name: str) -> str:
    """Return the text to compute perplexity on: a text file unchanged, or the texts of a table joined by line ends."""
    return text(path, name) if path.suffix == ".txt" else "\n".join(row.text for row in rows(path, name))


def known_labels(arch: Mapping[str, object]) -> list[str]:
    """Return a classifier's labels in the order of its outputs, from its config.json, or Hugging Face's default names."""
    named, labels = arch.get("id2label"), arch.get("num_labels")
    names = named if isinstance(named, Mapping) else {}
    count = len(names) or (labels if isinstance(labels, int) and labels else 2)
    return [str(names.get(str(n), names.get(n, f"LABEL_{n}"))) for n in range(count)]


def find_output(label: str, known: list[str]) -> int | None:
    """Return the index of the output for a label in a file, matched by name (case ignored) or number; None if no output matches."""
    lowered = [one.casefold() for one in known]
    if label.strip().casefold() in lowered:
        return lowered.index(label.strip().casefold())
    return int(label) if label.strip().isdecimal() and int(label) < len(known) else None


def _separated(said: str, name: str, suffix: str) -> list[dict[str, object]]:
    tabs = suffix == ".tsv"  # whose fields have no quotes of their own
    lines = io.StringIO(said, newline="")
    plain = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else None
    reader = plain or csv.DictReader(lines, strict=True)
    found: list[dict[str, object]] = []
    try:
        for one in reader:
            if None in one or None in one.values():
                where = f"score_data={name}: line {reader.line_num}"
                raise ConfigError(f"{where} has another number of fields than the first line has names")
            found.append(dict(one))
    except csv.Error as error:
        raise ConfigError(f"score_data={name}: line {reader.line_num} is no row of such a table: {error}") from None
    return found


def _json_lines(said: str, name: str, suffix: str) -> list[dict[str, object]]:
    found = []
    for number, line in enumerate(said.splitlines(), 1):
        if line.strip():
            try:
                one = json.loads(line)
            except (ValueError, RecursionError):
                one = None
            if not isinstance(one, dict):
                raise ConfigError(f"score_data={name}: line {number} is no JSON object; a {suffix} file has one a line")
            found.append(one)
    return found


def _parquet(path: Path, name: str) -> list[dict[str, object]]:
    import pandas

    try:
        table = pandas.read_parquet(path).to_dict("records")
        return [{str(column): value for column, value in row.items()} for row in table]
    except Exception as error:  # of pyarrow, which has many
        raise ConfigError(f"score_data={name}: cannot be read as parquet ({type(error).__name__})") from None


def _of_columns(table: list[dict[str, object]], name: str) -> list[Row]:
    has = list(table[0]) if table else []
    first, second = _column(has, (*TEXT, *FIRST)), _column(has, SECOND)
    label, grade = _column(has, LABEL), _column(has, GRADE) if second else None
    if table and first is None:
        raise ConfigError(
            f"score_data={name}: no column of texts; it has {', '.join(has)[:200]}, expected {' or '.join(TEXT)}, or sentence1 "
            "and sentence2"
        )
    return [
        _row(one, (first, second, label), grade, f"score_data={name}: row {number}")
        for number, one in enumerate(table, 1)
    ]


def _row(one: Mapping[str, object], columns: tuple[str | None, ...], grade: str | None, where: str) -> Row:
    said = [None if column is None else one.get(column) for column in columns]
    for column, value in zip(columns, said):
        if column is not None and (value is None or not str(value).strip()):
            raise ConfigError(f"{where} has no {column}")
    text, second, label = (None if value is None else str(value) for value in said)
    return Row(text or "", second, label, None if grade is None else _number(one.get(grade), f"{where}: {grade}"))


def _column(has: list[str], wanted: tuple[str, ...]) -> str | None:
    return next((one for want in wanted for one in has if one.strip().casefold() == want), None)


def _number(said: object, what: str) -> float:
    try:
        value = float(said) if isinstance(said, (str, SupportsFloat)) else math.nan
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(f"{what} is {str(said)[:40]!r}, expected a number")
    return value
