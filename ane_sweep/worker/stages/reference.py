"""reference: what fp32 torch says, for every cell of a model to be compared with.

params  model, weights, seq_len, texts {count, seed, text: digest, tokenizer: digest or null},
        options {those that change inputs or outputs and are not at their default}
inputs  checkpoint (absent for random weights)
leaves  inputs.npz: each graph input stacked (N, 1, ...), and `valid` (N, S) bool: the positions that hold real text;
        outputs.npz: each graph output stacked (N, 1, ...) float32, from the Hugging Face module as it is;
        calibration.npz: as inputs.npz, of text that is not scored (as long as there is more)
        of a module of the user's own (_given.py), inputs of whatever shape
"""

import hashlib
from pathlib import Path
from typing import Any

from ane_sweep.bridge import building
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker.stages import StageResult, _given

STAGE = Stage(
    order=20, many="fp32 references", timeout_s=3600, base_gib=0.8, per_byte=1.3, guess_s=4, guess_per_gb=10,
    leaves="outputs", reads=("data/*.txt",),
)  # fmt: skip

CALIBRATION = 8  # inputs to calibrate on


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring. Where texts.tokenizer is null, ids are seeded: texts = "synthetic"."""
    import torch

    from ane_sweep.worker.models import _build
    from ane_sweep.worker.stages._arrays import StackWriter

    if params["model"]["task"] == "tensors":
        return _given.leave(params, inputs, out)
    model, checkpoint = params["model"], inputs.get("checkpoint")
    options = building.options(params)
    module, its_ports = _build.build(params, inputs, "original")
    ports = its_ports()
    full, count = options.head == "last", params["texts"]["count"]
    for name, first, number in (("calibration.npz", count, CALIBRATION), ("inputs.npz", 0, count)):
        source, ids, valid = _texts(params, checkpoint, first, number, full)
        feeds = _seeded(params, ports, first, number)
        feeds = feeds or {port.name: _feed(port.name, ids, valid, model, module) for port in ports.inputs}
        _save(out / name, {**feeds, "valid": valid})
    with torch.inference_mode(), StackWriter(out / "outputs.npz", len(ids)) as stack:
        for index in range(len(ids)):
            results = module(*(torch.from_numpy(feeds[port.name][index]) for port in ports.inputs))
            stack.put(index, {port.name: result.numpy() for port, result in zip(ports.outputs, results)})
    digest = hashlib.sha256((out / "inputs.npz").read_bytes()).hexdigest()[:16]
    return StageResult(realised={"texts": source, "texts_count": len(ids), "texts_digest": digest})


def _seeded(params: dict[str, Any], ports, first: int, count: int) -> dict[str, Any]:
    """Normal numbers for a model that takes features and no text; nothing for the others."""
    import numpy as np

    if params["model"]["task"] != "features":
        return {}
    random = np.random.default_rng(params["texts"]["seed"] + bool(first))
    return {port.name: random.standard_normal((count, *port.shape), np.float32) for port in ports.inputs}


def _texts(params: dict[str, Any], checkpoint: Path | None, first: int, count: int, full: bool) -> tuple[str, Any, Any]:
    """("real" | "synthetic", ids (N,S) int32, valid (N,S) bool) of `count` texts from the `first` on. With `full`, no
    window is shorter than S if the text allows it: the last position is the one that counts."""
    import numpy as np

    from ane_sweep.worker.stages import _tokens

    if params["model"]["task"] == "features":
        valid = np.ones((count, params["seq_len"]), bool)
        return "synthetic", valid.astype(np.int32), valid
    wish, seq_len, vocabulary = params["texts"], params["seq_len"], params["model"]["arch"]["vocab_size"]
    decoder = params["model"]["task"] == "causal_lm"
    if wish["tokenizer"] is None:
        return "synthetic", *_tokens.synthetic(count, seq_len, vocabulary, wish["seed"] + bool(first), full=decoder)
    tokenizer = _tokens.find_tokenizer(checkpoint)
    if tokenizer is None:
        raise StageError(f"{checkpoint} has no tokenizer (tokenizer.json, or vocab.txt, or vocab.json and merges.txt)")
    if decoder:
        return "real", *_tokens.windows(tokenizer, count, seq_len, vocabulary, full, first)
    return "real", *_tokens.sentences(tokenizer, count, seq_len, vocabulary, first)


def _feed(name: str, ids, valid, model: dict[str, Any], module):
    """What one graph input is fed with, (N, 1, ...)."""
    import numpy as np
    import torch

    if name == "input_ids":
        return ids[:, None]
    if name in ("attention_mask", "key_mask"):
        return valid[:, None].astype(np.float32)
    if name == "causal_mask":
        from ane_sweep.worker.models._hf import causal_mask

        return np.repeat(causal_mask(ids.shape[1]).numpy()[None], len(ids), axis=0)
    if name == "decoder_input_ids":  # the same text, one to the right, as in training
        start = np.full((len(ids), 1), model["arch"].get("decoder_start_token_id", 0), np.int32)
        return np.concatenate([start, ids[:, :-1]], axis=1)[:, None]
    if name == "inputs_embeds":
        hf = getattr(module, "inner", module).hf  # beneath the padding, where there is one
        with torch.inference_mode():
            return hf.get_input_embeddings()(torch.from_numpy(ids)).numpy()[:, None]
    raise ValueError(f"do not know what to feed the graph input {name!r} with")


def _save(path: Path, arrays: dict[str, Any]) -> None:
    from ane_sweep.worker.stages._arrays import StackWriter

    with StackWriter(path, len(arrays["valid"])) as stack:
        for index in range(len(arrays["valid"])):
            stack.put(index, {name: array[index] for name, array in arrays.items()})
