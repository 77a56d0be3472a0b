"""tiny options of every family, deep enough to be grown from a few blocks: packages beside those of converting all blocks

`ANE_SWEEP_MODELS=tiny-gpt2,tiny-t5` compares others. Equal means: every file, byte for byte.
"""

import copy
import filecmp
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ane_sweep.bench import Row, families
from ane_sweep.bridge import building
from ane_sweep.bridge import families as known

SEQ_LEN = 16
DEPTHS = {"gpt_neo": 22, "t5": 24}  # those whose blocks come in turns, or in two lists
DEPTH = 11
OPTIONS: tuple[dict[str, Any], ...] = (
    {"head": "last"}, {"mask": "causal_input"}, {"mask": "qk_and_k"}, {"embeddings": "out"}, {"lm_head_splits": 3},
    {"norm": "fp32_mean"}, {"norm": "fp32"}, {"pad_last_axis": 64},
)  # fmt: skip
WITH_OPTIONS = "tiny-gpt2"


def run() -> list[Row]:
    """One row a model and variant, and one of all."""
    names = os.environ.get("ANE_SWEEP_MODELS", "")
    options = [one for one in families.tiny_options() if not names or one["name"] in names.split(",")]
    rows, tried, equal = [], 0, 0
    for option in options:
        for variant in known.variants(option["family"]):
            same, grown, cpu = _compare_all(option, variant)
            tried, equal = tried + len(same), equal + sum(same)
            what = (
                f"{option['name']} {variant}, {depth(option)} blocks: {sum(same)} of {len(same)} equal, {grown} grown"
            )
            rows.append(Row(what, f"{cpu[1]:.1f} s CPU", f"{cpu[0]:.1f} s CPU, all blocks"))
    return [Row(f"all: {tried} cases tried", f"{equal} equal", bar="all"), *rows]


def depth(option: dict[str, Any]) -> int:
    return DEPTHS.get(option["family"], DEPTH)


def deep(option: dict[str, Any], count: int) -> dict[str, Any]:
    """The architecture with that many blocks."""
    arch = copy.deepcopy(option["arch"])
    if option["family"] == "convnext":
        return arch | {"depths": [1, count]}
    if option["family"] == "t5":
        return arch | {"num_layers": count, "num_decoder_layers": count - 1}
    if option["family"] == "gpt_neo":
        arch["attention_types"] = [[["global", "local"], count // 2]]
    served = known.serves(option["family"])
    assert served is not None
    part, _, key = served.key(option["task"], served.layers).rpartition(".")
    (arch[part] if part else arch)[key] = count
    return arch


def _compare_all(option: dict[str, Any], variant: str) -> tuple[list[bool], int, list[float]]:
    cases: list[dict[str, Any]] = [{}, {"compute": "fp32"}] if option["name"] == WITH_OPTIONS else [{}]
    if option["name"] == WITH_OPTIONS:
        split = variant == "split_einsum"
        cases += [
            one for one in OPTIONS if split or not ({"lm_head_splits"} & one.keys() or one == {"norm": "fp32_mean"})
        ]
    found = [compare(option, variant, depth(option), one) for one in cases]
    cpu = [sum(one[2][which] for one in found) for which in (0, 1)]
    return [one[0] for one in found], sum(one[1] for one in found), cpu


def compare(option: dict[str, Any], variant: str, count: int, more: dict[str, Any]) -> tuple[bool, bool, list[float]]:
    """(whether both ways wrote the same bytes, whether it was grown, CPU seconds of all blocks and of a few)."""
    from ane_sweep.worker.stages import convert

    params = {
        "model": {"family": option["family"], "task": option["task"], "arch": deep(option, count)}, "seq_len": SEQ_LEN,
        "variant": variant, "weights": {"kind": "random", "seed": 0}, "target": "iOS18", "compute": more.get("compute", "fp16"),
        "options": {name: value for name, value in more.items() if name in vars(building.PLAIN)},
    }  # fmt: skip
    seconds, facts = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for way in ("0", "1"):
            os.environ[convert.GROW_VARIABLE] = way
            out, began = Path(folder, way), time.process_time()
            out.mkdir()
            facts = convert.run(params, {}, out).facts
            seconds.append(time.process_time() - began)
        same = _same(Path(folder, "0"), Path(folder, "1"))
    return same, "grown_blocks" in facts, seconds


def _same(one: Path, other: Path) -> bool:
    files = [sorted(str(path.relative_to(side)) for path in side.rglob("*") if path.is_file()) for side in (one, other)]
    return files[0] == files[1] and not any(filecmp.cmpfiles(one, other, files[0], shallow=False)[1:])
