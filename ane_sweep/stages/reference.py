"""reference: what fp32 torch says, for every cell of a model to be compared with.

params  model, weights, seq_len, inputs {count, seed, text: digest, tokenizer: digest or null}
inputs  checkpoint (absent for random weights)
leaves  inputs.npz: each graph input stacked (N, 1, S), and `valid` (N, S) bool: the positions that hold real text;
        outputs.npz: each graph output stacked (N, 1, ...) float32, from the Hugging Face module as it is
"""

from pathlib import Path
from typing import Any

from ane_sweep import models

from . import StageResult


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring. Where inputs.tokenizer is null, ids are seeded: inputs = "synthetic"."""
    import torch

    from ane_sweep.models import weights

    from ._arrays import StackWriter

    model, seq_len, checkpoint = params["model"], params["seq_len"], inputs.get("checkpoint")
    family = models.get(model["family"])
    ports = family.ports(model, seq_len)
    source, feeds = _inputs(params, checkpoint, {port.name for port in ports.inputs})
    _save(out / "inputs.npz", feeds)
    state = weights.load_state(params["weights"], checkpoint, model)
    module = family.VARIANTS["original"](model, state, seq_len)
    count = len(feeds["input_ids"])
    with torch.inference_mode(), StackWriter(out / "outputs.npz", count) as stack:
        for index in range(count):
            results = module(*(torch.from_numpy(feeds[port.name][index]) for port in ports.inputs))
            stack.put(index, {port.name: result.numpy() for port, result in zip(ports.outputs, results)})
    return StageResult(realised={"inputs": source})


def _inputs(params: dict[str, Any], checkpoint: Path | None, names: set[str]) -> tuple[str, dict[str, Any]]:
    """("text" | "synthetic", {input name -> (N,1,S), "valid" -> (N,S)})."""
    import numpy as np

    from ane_sweep.errors import StageError

    from . import _tokens

    wish, seq_len, vocabulary = params["inputs"], params["seq_len"], params["model"]["arch"]["vocab_size"]
    decoder = params["model"]["task"] == "causal_lm"
    if wish["tokenizer"] is None:
        source = "synthetic"
        ids, valid = _tokens.synthetic(wish["count"], seq_len, vocabulary, wish["seed"], full=decoder)
    else:
        source = "text"
        tokenizer = _tokens.find_tokenizer(checkpoint)
        if tokenizer is None:
            raise StageError(
                f"{checkpoint} has no tokenizer (tokenizer.json, or vocab.txt, or vocab.json and merges.txt)"
            )
        make = _tokens.windows if decoder else _tokens.sentences
        ids, valid = make(tokenizer, wish["count"], seq_len, vocabulary)
    feeds = {"input_ids": ids[:, None], "valid": valid}
    if "attention_mask" in names:
        feeds["attention_mask"] = valid[:, None].astype(np.float32)
    return source, feeds


def _save(path: Path, arrays: dict[str, Any]) -> None:
    from ._arrays import StackWriter

    with StackWriter(path, len(arrays["valid"])) as stack:
        for index in range(len(arrays["valid"])):
            stack.put(index, {name: array[index] for name, array in arrays.items()})
