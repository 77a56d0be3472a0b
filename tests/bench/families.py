"""every model family in miniature: both variants converted, their ops, error against Hugging Face, PSNR in fp16"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ane_sweep.bridge.axes import declared
from ane_sweep.bridge.building import Options
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.worker import models
from ane_sweep.worker.models._ports import Port
from ane_sweep.worker.models._types import Model
from tests.bench import Row
from tests.shipped import all_shipped

if TYPE_CHECKING:
    import torch

SEQ_LEN = 32
OLDEST, NEWEST = "iOS15", "iOS26"


def run() -> list[Row]:
    """One row a family, task and variant; seeded random weights. Conversions of some seconds each."""
    return [row for option in tiny_options() for row in _rows(option)]


def tiny_options() -> list[dict[str, Any]]:
    """The options of conf/model in miniature, one a family."""
    return [option for name, option in all_shipped("model").items() if name.startswith("tiny-")]


def _rows(option: dict[str, Any]) -> list[Row]:
    rows = []
    for variant in ("original", "split_einsum"):
        found = [_converted(option, variant, target) for target in (OLDEST, NEWEST)]
        error = fp32_error(option, variant)
        rows.append(Row(f"{option['family']} {variant}", f"{'; '.join(found)}; fp32 error {error:.0e} of the peak"))
    return rows


def _converted(option: dict[str, Any], variant: str, target: str) -> str:
    try:
        figures = measure(option, variant, target)
    except Exception as error:  # the table says which conversions fail, whatever the converter raises
        return f"{target} does not convert ({str(error).splitlines()[0][:80]})"
    return f"{target} {figures['ops']:>3} ops {figures['psnr_db']:.1f} dB"


def fp32_error(option: dict[str, Any], variant: str, seq_len: int = SEQ_LEN, seed: int = 0) -> float:
    """Largest difference from Hugging Face's own forward pass over its peak, in fp32 on random weights.

    Hugging Face's module is called as a user would, with ids and a 2-D mask; ours gets ready masks and positions.
    """
    import torch

    from ane_sweep.worker.models import _hf, weights

    model = {key: option[key] for key in ("family", "task", "arch")}
    family = models.get(model["family"])
    state = weights.make_random_state(Model(family=model["family"], task=model["task"], arch=model["arch"]), seed)
    real = max(1, 2 * seq_len // 3) if _pads(model) else seq_len
    ports = family.ports(model, seq_len)
    theirs = {port.name: fed(port, model, real, seed) for port in ports.inputs}
    ours = [theirs[port.name].to(getattr(torch, port.dtype)) for port in ports.inputs]
    with torch.no_grad():
        got = family.VARIANTS[variant](model, state, seq_len)(*ours)
        said = _hf.build_filled(lambda: family.skeleton(model), state)(**theirs)
    worst = 0.0
    for port, value in zip(ports.outputs, got):
        name = "encoder_" + port.name if model["task"] == "seq2seq" and port.name != "logits" else port.name
        expected = said[name]
        if value.dim() == 3 and _pads(model):
            value, expected = value[:, :real], expected[:, :real]
        worst = max(worst, float((value - expected).abs().max() / expected.abs().max()))
    return worst


def _pads(model: dict[str, Any]) -> bool:
    kind = KINDS[model["task"]]
    return kind.reads == "sentences" and kind.length == "seq_len"


def fed(port: Port, model: dict[str, Any], real: int, seed: int) -> "torch.Tensor":
    """What Hugging Face's module takes: seeded ids, a 2-D mask, or numbers of the port's range."""
    import numpy as np
    import torch

    from ane_sweep.worker.feeds import seeds

    if port.seeded:
        return torch.from_numpy(seeds.draw_values(port, np.random.default_rng(seed)))
    if port.name == "attention_mask":
        return (torch.arange(port.shape[1]) < real).long()[None]
    # Ids below 2 are padding or beginnings to some families.
    most = KINDS[model["task"]].count_ids(model["arch"]) if port.last is None else port.last
    ids = torch.randint(2, most, port.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
    if port.last is not None:
        ids[:, -port.shape[1] // 3 :] = port.last  # the text ends with the first of them
    return ids


def measure(option: dict[str, Any], variant: str, target: str, compute: str = "fp16", **options: Any) -> dict[str, Any]:
    """Convert one variant and run it in the reference runtime: {"ops", "psnr_db", ...} against fp32 torch."""
    from ane_sweep.worker.stages import convert, reference, score

    model = {key: option[key] for key in ("family", "task", "arch")}
    weights = {"kind": "random", "digest": "random:0", "seed": 0}
    common = {"model": model, "weights": weights, "seq_len": SEQ_LEN}
    texts = {"count": 2, "seed": 0, "text": "", "tokenizer": None}
    interface = {name: value for name, value in options.items() if "reference" in declared(Options)[name].enters}
    with tempfile.TemporaryDirectory() as folder:
        places = {name: Path(folder, name) for name in ("reference", "program", "score")}
        for place in places.values():
            place.mkdir()
        reference.run({**common, "texts": texts, "options": interface}, {}, places["reference"])
        params = {**common, "variant": variant, "target": target, "compute": compute, "options": options}
        made = convert.run(params, {}, places["program"])
        runs: dict[str, object] = {"model": model, "runtime": "reference", "compute_units": None, "options": options}
        found = score.run(runs, {key: places[key] for key in ("program", "reference")}, places["score"])
    return {**made.facts, **{metric.name: metric.value for metric in found.metrics}}
