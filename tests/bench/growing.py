"""programs grown from a few blocks beside those of converting all, byte for byte: every family, variant and option, 2 to 6 blocks deep

Each case is tried once for the code as it is: what was tried stands in outputs/growing.jsonl, and a later run goes on there.
`ANE_SWEEP_MODELS=tiny-gpt2,tiny-t5` tries those alone. Equal means: every file of the package, byte for byte.
"""

import copy
import dataclasses
import filecmp
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ane_sweep.bridge import axes, building
from ane_sweep.bridge import families as known
from ane_sweep.bridge.cell import Cell
from ane_sweep.bridge.kinds import KINDS
from tests.bench import Row, families

SEQ_LEN, TARGET = 16, "iOS18"
SMALL = range(2, 7)
DEEP = {"gpt_neo": 22, "t5": 24}  # deep enough to pay; those whose blocks come in turns, or in two lists
OPTIONS: tuple[dict[str, Any], ...] = (
    {"head": "last"}, {"mask": "causal_per_head"}, {"mask": "band_part"}, {"mask": "causal_input"}, {"mask": "qk_and_k"},
    {"mask_dtype": "fp32"}, {"batch": 2}, {"embeddings": "out"}, {"lm_head_splits": 3},
    {"norm": "fp16_ops"}, {"norm": "fp32_mean"}, {"norm": "fp32"}, {"pad_last_axis": 64}, {"cache": "stateful"},
    {"cache": "explicit"}, {"inputs": "fp16"},
)  # fmt: skip
_WORKER = Path(__file__).parents[2] / "ane_sweep" / "worker"


@dataclass(frozen=True)
class Case:
    """A tiny option with `count` blocks, and what else is asked for. `always`: grown where it does not pay, too."""

    model: str
    variant: str
    count: int
    more: dict[str, Any]
    always: bool = True


@dataclass(frozen=True)
class Found:
    """Whether both ways, and the grown one twice, wrote the same bytes; whether it was grown; why not; CPU seconds of all
    blocks and of a few."""

    equal: bool
    grown: bool
    why: str
    cpu_s: tuple[float, float]


def run() -> list[Row]:
    """One row of all, and one a model."""
    names = [name for name in os.environ.get("ANE_SWEEP_MODELS", "").split(",") if name]
    tried = _tried()
    for case in cases():
        key = _key(case)
        if key not in tried and (not names or case.model in names):
            tried[key] = dataclasses.asdict(compare(case))
            with _file().open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **tried[key]}) + "\n")
    by_model: dict[str, list[dict[str, Any]]] = {}
    for case in cases():
        if (found := tried.get(_key(case))) is not None:
            by_model.setdefault(case.model, []).append(found)
    rows = [_row(name, found) for name, found in by_model.items()]
    whole = f"all {sum(1 for _ in cases())} cases"
    return [_row(whole, [one for found in by_model.values() for one in found]), *rows]


def _row(name: str, found: list[dict[str, Any]]) -> Row:
    equal, grown = (sum(one[what] for one in found) for what in ("equal", "grown"))
    return Row(f"{name}: {len(found)} tried, {grown} grown", f"{equal} equal", bar="all")


def _file() -> Path:
    folder = Path(os.environ.get("ANE_SWEEP_OUT", "outputs"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "growing.jsonl"


def _tried() -> dict[str, dict[str, Any]]:
    lines = _file().read_text(encoding="utf-8").splitlines() if _file().is_file() else []
    return {one.pop("key"): one for one in map(json.loads, lines)}


def _key(case: Case) -> str:
    """Of the case and of all the code that a conversion runs."""
    if not _CODE:
        sources = sorted(_WORKER.rglob("*.py"))
        _CODE.append(hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16])
    return f"{_CODE[0]} {json.dumps(dataclasses.asdict(case), sort_keys=True)}"


_CODE: list[str] = []


def options() -> dict[str, dict[str, Any]]:
    return {option["name"]: option for option in families.tiny_options()}


def cases() -> Iterator[Case]:
    """Plain once so deep that it is grown unasked and at every small depth, in fp32 at two, and with each option that the model
    has at one; the fewer blocks alone, two and three, are converted as they are."""
    kinds = [(name, variant, one) for name, one in options().items() for variant in known.variants(one["family"])]
    for name, variant, option in kinds:
        yield Case(name, variant, DEEP.get(option["family"], 11), {}, always=False)
    for count, more in [
        (4, {}),
        (6, {"compute": "fp32"}),
        (6, {}),
        (5, {}),
        (4, {"compute": "fp32"}),
        (3, {}),
        (2, {}),
    ]:
        yield from (Case(name, variant, count, more) for name, variant, option in kinds if _can_be(option, count))
    for number, more in enumerate(OPTIONS):
        count = 4 + number % 3
        for name, variant, option in kinds:
            if refusal(option, variant, more) is None:
                yield Case(name, variant, count if _can_be(option, count) else 6, more)


def _can_be(option: dict[str, Any], count: int) -> bool:
    return option["family"] != "gpt_neo" or count % 2 == 0


def refusal(option: dict[str, Any], variant: str, more: dict[str, Any]) -> str | None:
    """Why a cell of the model with this option would be refused."""
    asked = {
        **{field.name: field.default for field in dataclasses.fields(Cell)}, **vars(building.PLAIN), "variant": variant,
        "seq_len": SEQ_LEN, "family": option["family"],
        "task": option["task"], "compute": "fp16", "ios_target": TARGET, "runtime": "reference",
        "longest": 1 << 20, "vocabulary": KINDS[option["task"]].count_ids(option["arch"]), "honours": (), **more,
    }  # fmt: skip
    declared = axes.declared(building.Options)
    return next((reason for name in more if (reason := declared[name].refusal(name, asked))), None)


def deep(option: dict[str, Any], count: int) -> dict[str, Any]:
    """The architecture with that many blocks."""
    arch: dict[str, Any] = copy.deepcopy(option["arch"])
    if option["family"] == "convnext":
        return arch | {"depths": [1, count]}
    if option["family"] == "t5":
        return arch | {"num_layers": count, "num_decoder_layers": max(1, count - 1)}
    if option["family"] == "gpt_neo":
        arch["attention_types"] = [[["global", "local"], count // 2]]
    served = known.serves(option["family"])
    assert served is not None
    part, _, key = served.key(option["task"], served.layers).rpartition(".")
    (arch[part] if part else arch)[key] = count
    return arch


def compare(case: Case) -> Found:
    return both_ways(params(case), {}, case.always, again=case.count == max(SMALL))


def params(case: Case) -> dict[str, Any]:
    option = options()[case.model]
    return {
        "model": {"family": option["family"], "task": option["task"], "arch": deep(option, case.count)},
        "seq_len": SEQ_LEN, "variant": case.variant, "weights": {"kind": "random", "seed": 0}, "target": TARGET,
        "compute": case.more.get("compute", "fp16"),
        "options": {name: value for name, value in case.more.items() if name in vars(building.PLAIN)},
    }  # fmt: skip


def both_ways(params: dict[str, Any], inputs: dict[str, Path], always: bool, again: bool = False) -> Found:
    """Convert all blocks, and a few, which may be done again."""
    from ane_sweep.worker import grow
    from ane_sweep.worker.stages import convert

    facts: dict[str, Any] = {}
    before, cpu = os.environ.get(grow.VARIABLE), []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for way in ("all", "few", "again"):
                if way == "again" and not ("grown_blocks" in facts and again):
                    continue
                os.environ[grow.VARIABLE] = "0" if way == "all" else grow.ALWAYS if always else "1"
                out, began = Path(folder, way), time.process_time()
                out.mkdir()
                facts = convert.run(params, inputs, out).facts
                cpu.append(time.process_time() - began)
        finally:
            os.environ.pop(grow.VARIABLE)
            os.environ |= {grow.VARIABLE: before} if before is not None else {}
        equal = all(same(Path(folder, "all"), other) for other in Path(folder).iterdir())
    return Found(equal, "grown_blocks" in facts, facts.get("not_grown", ""), (cpu[0], cpu[1]))


def same(one: Path, other: Path) -> bool:
    files = [sorted(str(path.relative_to(side)) for path in side.rglob("*") if path.is_file()) for side in (one, other)]
    return files[0] == files[1] and not any(filecmp.cmpfiles(one, other, files[0], shallow=False)[1:])
