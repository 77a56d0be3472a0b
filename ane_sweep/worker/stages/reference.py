"""reference: what fp32 torch says, for every cell of a model to be compared with.

params  model, weights, seq_len, texts {count, seed, text: digest, tokenizer: digest or null},
        options {those that change inputs or outputs and are not at their default}
inputs  checkpoint (absent for random weights)
leaves  inputs.npz: each graph input stacked (N, 1, ...), and `valid` (N, S) bool: the positions that hold real text;
        outputs.npz: each graph output stacked (N, 1, ...) float32, from the Hugging Face module as it is;
        calibration.npz: as inputs.npz, of text that is not scored (as long as there is more)
        of a module of the user's own (own_module.py), inputs of whatever shape
"""

import hashlib
from pathlib import Path
from typing import Any

from ane_sweep.bridge import building
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker.feeds import own_module
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=20, many="fp32 references", timeout_s=3600, base_gib=0.8, per_byte=1.3, guess_s=4, guess_per_gb=10,
    leaves="outputs", reads=("data/*.txt",),
    warm=("torch", "transformers.modeling_utils", "coremltools"), holds="a layer",
)  # fmt: skip

CALIBRATION = 8  # inputs to calibrate on


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring. Where texts.tokenizer is null, ids are seeded: texts = "synthetic"."""
    import torch

    from ane_sweep.worker.feeds.arrays import StackWriter
    from ane_sweep.worker.models import _build, _turns

    if params["model"]["task"] == "tensors":
        return own_module.write_reference(params, inputs, out)
    model, checkpoint = params["model"], inputs.get("checkpoint")
    options = building.options(params)
    module, its_ports = _build.build(params, inputs, "original", lazy=True)
    ports = its_ports()
    full, count = options.head == "last", params["texts"]["count"]
    for name, first, number in (("calibration.npz", count, CALIBRATION), ("inputs.npz", 0, count)):
        if model["task"] == "features" or all(port.seeded for port in ports.inputs):
            said, feeds, valid = _draw_feeds(params, ports, first, number)
        else:
            source, ids, valid = _encode_texts(params, checkpoint, ports, first, number, full)
            feeds, said = (
                {port.name: make_feed(port.name, ids, valid, model, module) for port in ports.inputs},
                {"texts": source},
            )
        write_stacks(out / name, {**feeds, "valid": valid})
    rows = [tuple(torch.from_numpy(feeds[port.name][index]) for port in ports.inputs) for index in range(len(valid))]
    with StackWriter(out / "outputs.npz", len(valid)) as stack:
        for index, results in enumerate(_turns.run_in_turns(module, rows)):
            stack.put(index, {port.name: result.numpy() for port, result in zip(ports.outputs, results)})
    digest = hashlib.sha256((out / "inputs.npz").read_bytes()).hexdigest()[:16]
    return StageResult(realised={**said, "texts_count": len(valid), "texts_digest": digest})


def _draw_feeds(params: dict[str, Any], ports, first: int, count: int) -> tuple[dict[str, str], dict[str, Any], Any]:
    """(what they are, numbers by input, all of them valid) for a model that takes no text."""
    import numpy as np

    from ane_sweep.worker.feeds import seeds

    random = np.random.default_rng(params["texts"]["seed"] + bool(first))
    feeds = {
        port.name: np.stack([seeds.draw_values(port, random) for _ in range(count)]).astype(port.dtype)
        for port in ports.inputs
    }
    said = ", ".join(f"{port.name}: {seeds.describe_values(port)}" for port in ports.inputs)
    return {"inputs": said}, feeds, np.ones((count, 1), bool)


def _encode_texts(params: dict[str, Any], checkpoint: Path | None, ports, first: int, count: int, full: bool):
    """("real" | "synthetic", ids (N,S) int32, valid (N,S) bool) of `count` texts from the `first` on. With `full`, no
    window is shorter than S if the text allows it: the last position is the one that counts."""
    from ane_sweep.bridge import model_tasks
    from ane_sweep.worker.feeds import tokens

    wish, model, (_, seq_len) = params["texts"], params["model"], ports.inputs[0].shape[:2]
    vocabulary = model_tasks.vocabulary(model["task"], model["arch"])
    decoder = model["task"] == "causal_lm"
    if wish["tokenizer"] is None:
        ids, valid = tokens.draw_ids(count, seq_len, vocabulary, wish["seed"] + bool(first), full=decoder)
        if (last := ports.inputs[0].last) is not None:
            ids[range(count), valid.sum(axis=1) - 1] = last
        return "synthetic", ids, valid
    tokenizer = tokens.find_tokenizer(checkpoint)
    if tokenizer is None:
        raise StageError(f"{checkpoint} has no tokenizer (tokenizer.json, or vocab.txt, or vocab.json and merges.txt)")
    if decoder:
        return "real", *tokens.encode_windows(tokenizer, count, seq_len, vocabulary, full, first)
    return "real", *tokens.encode_sentences(tokenizer, count, seq_len, vocabulary, first)


def make_feed(name: str, ids, valid, model: dict[str, Any], module):
    """What one graph input is fed with, (N, 1, ...)."""
    import numpy as np
    import torch

    if name == "input_ids":
        return ids[:, None]
    if name in ("attention_mask", "key_mask"):
        return valid[:, None].astype(np.float32)
    if name == "causal_mask":
        from ane_sweep.worker.models._hf import make_causal_mask

        return np.repeat(make_causal_mask(ids.shape[1]).numpy()[None], len(ids), axis=0)
    if name == "decoder_input_ids":  # the same text, one to the right, as in training
        start = np.full((len(ids), 1), model["arch"].get("decoder_start_token_id", 0), np.int32)
        return np.concatenate([start, ids[:, :-1]], axis=1)[:, None]
    if name == "inputs_embeds":
        from ane_sweep.worker.models import _turns

        hf = getattr(module, "inner", module).hf  # beneath the padding, where there is one
        (rows,) = _turns.run_in_turns(hf.get_input_embeddings(), [(torch.from_numpy(ids),)])
        return rows.numpy()[:, None]
    raise ValueError(f"do not know what to feed the graph input {name!r} with")


def write_stacks(path: Path, arrays: dict[str, Any]) -> None:
    from ane_sweep.worker.feeds.arrays import StackWriter

    with StackWriter(path, len(arrays["valid"])) as stack:
        for index in range(len(arrays["valid"])):
            stack.put(index, {name: array[index] for name, array in arrays.items()})
