"""The commands of the notebooks' list in miniature, so that all of them run on any machine in a minute or two.

    python -m tests.proof.miniature      runs them in a scratch folder and prints each row, with the published figures beside ours

A row's command stays as it is, and so do its lengths. What it names is small: its models and kept matrices come from a folder
of options under the same names, where a model has the tiny architecture of its family and a matrix the same axes with as many
values. Places to cut that are megabytes become shares, pauses and long runs are shortened (`_small`), and what asks for an
iPhone runs on this host. Weights are random.
"""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ane_sweep import engine
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.record import Record, Status
from ane_sweep.planner import config
from ane_sweep.planner.matrix import Request
from ane_sweep.planner.paths import conf_dir
from ane_sweep.report import beside
from ane_sweep.report.views import Cells
from tests.proof import notebooks
from tests.proof.notebooks import Row
from tests.shipped import all_shipped

LONGEST, LAYERS, RUN = 512, 12, 32
DEEPER = {
    "pythia-2.8b": 6,
    "pythia-6.9b": 6,
    "gpt2-xl": 4,
}  # twelve chunks want as many places to cut, and two unequal ones some
KEPT = ("surgery", "bet")  # are small as they are
QUICK = [
    "weights=random", "latency.repeats=1", "latency.samples=1", "latency.warmup=1", "gate.wait_s=0", "tracking.enabled=false",
]  # fmt: skip
HERE = "torch_mps needs a Mac"  # the one thing that a command of the list may be refused for, off a Mac
TALKS = ("generate", "classify")  # verbs that take a sweep's keys
BOTH = 1811 + 1158  # MB: the two chunks of gpt2-xl


def options(folder: Path) -> Path:
    """A folder for --config-dir: every model and kept matrix under its own name, small."""
    models = all_shipped("model")
    tiny = {(one["family"], one["task"]): one for one in models.values() if one.get("size") == "tiny"}
    for name, option in models.items():
        if "defaults" in option:  # another's, under a name of its own
            continue
        like = tiny.get((option["family"], option["task"]))
        if like and option["size"] != "tiny" and not str(option["name"]).startswith(KEPT):
            _write(folder / "model" / f"{name}.yaml", _model(str(option["name"]), like))
    for path in sorted((conf_dir() / "sweep").rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("# @package"))
        matrix = yaml.safe_load(text)
        if not path.stem.startswith(KEPT):
            _matrix(matrix.get("sweep", matrix))
        _write(folder / path.relative_to(conf_dir()), matrix, head)
    return folder


def _model(name: str, like: dict[str, Any]) -> dict[str, Any]:
    made = {**like, "name": name, "texts": {"count": 2}}
    if layers := DEEPER.get(name):
        made |= {"layers": layers, "cut_points": 2 * layers + 1}
        made["arch"] = {**like["arch"], like["arch_keys"]["layers"]: layers}
    if made["family"] == "ladder":  # whose positions are inputs
        made |= {"max_seq_len": LONGEST, "arch": {**made["arch"], "max_seq_len": LONGEST}}
    return made


def _matrix(sweep: dict[str, Any]) -> None:
    axes = sweep.get("axes") or {}
    for lists in (axes, *(sweep.get("pairs") or [])):
        for key, values in lists.items():
            lists[key] = _values(key, values)


def _values(key: str, values: list[Any]) -> list[Any]:
    """As many different ones."""
    rank = {value: n for n, value in enumerate(sorted(set(values)))} if key.startswith("model.") else {}
    if key == "model.arch.num_hidden_layers":
        return [LAYERS + rank[value] for value in values]
    if key == "model.parameters":
        return [33088 * (LAYERS + rank[value]) for value in values]
    return [_small(key, value) for value in values]


def _small(key: str, value: Any) -> Any:
    if key == "throughput":
        return min(int(value), RUN)
    if key == "latency.idle_s":
        return float(value) / 100
    if key == "cuts":
        return [_share(place) for place in value]
    return value


def _share(place: str) -> float | str:
    found = re.fullmatch(r"(\d+)MB", place)
    return round(int(found[1]) / BOTH, 2) if found else place


def words(row: Row, folder: Path) -> list[str]:
    """Of the row's command, small."""
    given = [_word(word) for word in row.words if word != "device=usb"]
    asked = {word.partition("=")[0] for word in given}
    quick = QUICK if row.verb == "" else QUICK[:1] if row.verb in TALKS else []
    own = ["--config-dir", str(folder)] if quick else []
    return [*own, *given, *(word for word in quick if word.partition("=")[0] not in asked)]


def _word(word: str) -> str:
    key, _, values = word.partition("=")
    if key in ("throughput", "latency.idle_s"):
        return f"{key}={','.join(f'{_small(key, value):g}' for value in values.split(','))}"
    return word


def together(requests: Iterable[Request]) -> Request:
    """All their cells, each once, for all their chips: one sweep."""
    requests = list(requests)
    cells: dict[str, Cell] = {cell.key: cell for request in requests for cell in request.cells}
    chips = dict.fromkeys(chip for request in requests for chip in request.settings.chips)
    axes = [
        "model",
        "variant",
        "precision",
        "chunks",
        "compute_units",
    ]  # what cells are called; of the rest each row has its own
    return Request(list(cells.values()), axes, replace(requests[0].settings, chips=list(chips)))


def _write(path: Path, option: dict[str, Any], head: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(head + yaml.safe_dump(option, sort_keys=False), encoding="utf-8")


def requests(folder: Path, load: Callable[[list[str]], Request] = config.load) -> dict[Row, Request]:
    """What each row that is a sweep asks for, small; each command is composed once. A row of a checkpoint waits for its folder."""
    once = cache(lambda given: load(list(given)))
    here = [row for row in notebooks.rows() if "./finetuned" not in row.command or Path("finetuned").is_dir()]
    return {row: once(tuple(words(row, folder))) for row in here if not row.verb}


def records_of(request: Request, found: Mapping[str, Record]) -> list[Record]:
    """Of the cells of one row, as the cells that they stand for: with cuts in megabytes again."""
    return [_in_full(found[cell.key]) for cell in request.cells]


def _in_full(record: Record) -> Record:
    near = {_share(place): place for place in ("1811MB", "1158MB", "2100MB")}
    cuts = record.cell.get("cuts")
    return replace(record, cell={**record.cell, "cuts": [near.get(one, one) for one in cuts]}) if cuts else record


def said(row: Row, records: list[Record]) -> Iterator[str]:
    """A row's lines: what came of it, then each published figure and what ours says beside it."""
    counts = {status.value: sum(one.status is status for one in records) for status in Status}
    came = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    yield f"{row.note}, {row.paragraph}: {came}: {row.command}"
    for line in beside.rows(Cells(records)):
        shown = dict(zip(beside.HEADS, line))
        kept = [f"{name} {shown[name]}" for name in beside.HEADS[2:-1] if shown[name] != "-"]
        yield f"    {shown['on']}: {'; '.join(kept)}"


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        asked = requests(options(Path(scratch, "conf")))
        _, records = engine.sweep(together(asked.values()), Path(scratch, "outputs"), ["miniature"])
        found = {record.cell_key: record for record in records}
        for row, request in asked.items():
            print(*said(row, records_of(request, found)), sep="\n")


if __name__ == "__main__":
    main()
