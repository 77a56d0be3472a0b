"""reference: computes the outputs of fp32 torch, to which every cell of a model is compared.

params  model, weights, seq_len, texts {count, seed, text: digest, tokenizer: digest or null},
        options {those that change inputs or outputs and differ from their default}
inputs  checkpoint (absent for random weights)
leaves  inputs.npz: each graph input stacked (N, 1, ...), and `valid` (N, S) bool: the positions that hold real text;
        outputs.npz: each graph output stacked (N, 1, ...) float32, from the unchanged Hugging Face module;
        calibration.npz: like inputs.npz, from text that is not scored (if there is more); for a user's own module
        (own_module.py), inputs have any shape
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ane_sweep.bridge import building
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker import params
from ane_sweep.worker.feeds import own_module, seeds, tokens
from ane_sweep.worker.feeds.arrays import StackWriter
from ane_sweep.worker.feeds.own_module import Arrays
from ane_sweep.worker.models._ports import Ports
from ane_sweep.worker.params import Texts
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=20, many="fp32 references", timeout_s=3600, base_gib=0.43, per_byte=1.1, base_s=0.5, per_gb_s=3,
    leaves="outputs", reads=("data/*.txt",),
    warm=("torch", "transformers.modeling_utils", "coremltools"), holds="a layer",
)  # fmt: skip

CALIBRATION = 8  # inputs to calibrate on


class Params(params.BuildParams, frozen=True, kw_only=True):
    """Parameters of this stage; the model's builder reads more of the same JSON."""

    texts: Texts


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Write inputs and outputs of the model. Without a tokenizer, the ids are seeded: texts = "synthetic"."""
    import torch

    from ane_sweep.worker.models import _build, _turns

    settings = Params.read(params)
    if KINDS[settings.model.task].length == "caller":
        return own_module.write_reference(params, settings.model, settings.texts, inputs, out)
    model = msgspec.to_builtins(settings.model)
    module, its_ports = _build.build(params, inputs, "original", lazy=True)
    ports: Ports = its_ports()
    full, count = building.options(params).head == "last", settings.texts.count
    for name, first, number in (("calibration.npz", count, CALIBRATION), ("inputs.npz", 0, count)):
        if not KINDS[settings.model.task].reads:
            realised, feeds, valid = _draw_feeds(settings.texts, ports, first, number)
        else:
            source, ids, valid = _encode_texts(settings, inputs.get("checkpoint"), ports, first, number, full)
            feeds = {port.name: make_feed(port.name, ids, valid, model, module) for port in ports.inputs}
            realised = {"texts": source}
        write_stacks(out / name, {**feeds, "valid": valid})
    rows = [tuple(torch.from_numpy(feeds[port.name][index]) for port in ports.inputs) for index in range(len(valid))]
    with StackWriter(out / "outputs.npz", len(valid)) as stack:
        for index, results in enumerate(_turns.run_in_turns(module, rows)):
            check_results(results, ports, settings.model.family)
            stack.put(index, {port.name: result.numpy() for port, result in zip(ports.outputs, results, strict=True)})
    digest = hashlib.sha256((out / "inputs.npz").read_bytes()).hexdigest()[:16]
    return StageResult(realised={**realised, "texts_count": len(valid), "texts_digest": digest})


def check_results(results: object, ports: Ports, family: str) -> None:
    """Raise StageError if the module of a family returned something else than a tuple with a tensor for each port."""
    names = ", ".join(port.name for port in ports.outputs)
    if not isinstance(results, tuple):
        got = f"a {type(results).__name__}"
    elif len(results) != len(ports.outputs):
        got = f"{len(results)} outputs"
    else:
        return
    raise StageError(
        f"family {family}: its forward returned {got}; expected a tuple of the outputs of its ports: {names}"
    )


def _draw_feeds(texts: Texts, ports: Ports, first: int, count: int) -> tuple[dict[str, str], Arrays, np.ndarray]:
    """Draw inputs of a model that takes no text; return their description, the arrays, and `valid`, all True."""
    random = np.random.default_rng(texts.seed + bool(first))
    feeds = {
        port.name: np.stack([seeds.draw_values(port, random) for _ in range(count)]).astype(port.dtype)
        for port in ports.inputs
    }
    described = ", ".join(f"{port.name}: {seeds.describe_values(port)}" for port in ports.inputs)
    return {"inputs": described}, feeds, np.ones((count, 1), bool)


def _encode_texts(
    settings: Params, checkpoint: Path | None, ports: Ports, first: int, count: int, full: bool
) -> tuple[str, np.ndarray, np.ndarray]:
    """Return ("real" | "synthetic", ids (N,S) int32, valid (N,S) bool) of `count` texts from the `first` on.

    With `full`, every window has length S if the text is long enough, because the last position is scored.
    """
    texts, model, (_, seq_len) = settings.texts, settings.model, ports.inputs[0].shape[:2]
    kind = KINDS[model.task]
    vocabulary, decoder = kind.count_ids(model.arch), kind.reads == "windows"
    if texts.tokenizer is None:
        ids, valid = tokens.draw_ids(count, seq_len, vocabulary, texts.seed + bool(first), full=decoder)
        if (last := ports.inputs[0].last) is not None:
            ids[range(count), valid.sum(axis=1) - 1] = last
        return "synthetic", ids, valid
    tokenizer = tokens.find_tokenizer(checkpoint)
    if tokenizer is None:
        raise StageError(f"{checkpoint} has no tokenizer (tokenizer.json, or vocab.txt, or vocab.json and merges.txt)")
    if decoder:
        return "real", *tokens.encode_windows(tokenizer, count, seq_len, vocabulary, full, first)
    return "real", *tokens.encode_sentences(tokenizer, count, seq_len, vocabulary, first)


def make_feed(name: str, ids: np.ndarray, valid: np.ndarray, model: dict[str, Any], module: Any) -> np.ndarray:
    """Return the values of one graph input for ids (N, S), as (N, 1, ...)."""
    import torch

    if name == "input_ids":
        return ids[:, None]
    if name in ("attention_mask", "key_mask"):
        return valid[:, None].astype(np.float32)
    if name == "causal_mask":
        from ane_sweep.worker.models._hf import make_causal_mask

        mask: np.ndarray = np.repeat(make_causal_mask(ids.shape[1]).numpy()[None], len(ids), axis=0)
        return mask
    if name == "decoder_input_ids":  # the same text, one to the right, as in training
        start = np.full((len(ids), 1), model["arch"].get("decoder_start_token_id", 0), np.int32)
        shifted: np.ndarray = np.concatenate([start, ids[:, :-1]], axis=1)[:, None]
        return shifted
    if name == "inputs_embeds":
        from ane_sweep.worker.models import _turns

        hf = getattr(module, "inner", module).hf  # beneath the padding, where there is one
        (rows,) = _turns.run_in_turns(hf.get_input_embeddings(), [(torch.from_numpy(ids),)])
        embeddings: np.ndarray = rows.numpy()[:, None]
        return embeddings
    raise ValueError(f"do not know what to feed the graph input {name!r} with")


def write_stacks(path: Path, arrays: Arrays) -> None:
    """Write arrays of (N, ...) to one .npz."""
    with StackWriter(path, len(arrays["valid"])) as stack:
        for index in range(len(arrays["valid"])):
            stack.put(index, {name: array[index] for name, array in arrays.items()})
