"""examples: a file that a model is scored on, as its inputs, and what fp32 torch says of each.

params  model, weights, seq_len, examples {score, data: digest, form, rows, stride}, tokenizer (digest), options
inputs  checkpoint, data (the file)
leaves  inputs.npz: as reference leaves it; outputs.npz: what torch gives, a plane a scored position (causal_lm) or an input;
        wanted.npz: `target` (the token that follows), `label` or `pair` and `grade`, and for causal_lm `scored` (N,S) bool

Running text is read in windows of seq_len tokens that move on by `stride`; each token is scored once, in the first window
that holds it, so with at least seq_len - stride tokens before it. That is the sliding window of Hugging Face's "Perplexity
of fixed-length models", whose average weighs each window by its scored tokens; the text's first token has nothing before it.
"""

import hashlib
from pathlib import Path
from typing import Any

from ane_sweep.bridge import examples
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=22, many="scored files", timeout_s=3600, base_gib=0.8, per_byte=1.3, guess_s=8, guess_per_gb=40, leaves="outputs",
    limited=False,
)  # fmt: skip


def run(params: dict[str, Any], inputs: dict[str, Path], out: Path) -> StageResult:
    """See the module's docstring. Raises StageError where the file is another one by now, or its text is too short."""
    import numpy as np
    import torch

    from ane_sweep.worker.feeds import tokens
    from ane_sweep.worker.feeds.arrays import StackWriter
    from ane_sweep.worker.models import _build
    from ane_sweep.worker.stages import reference

    asked, model = params["examples"], params["model"]
    if hashlib.sha256(inputs["data"].read_bytes()).hexdigest() != asked["data"]:
        raise StageError(f"{inputs['data'].name} has changed since the plan was made; run the same command again")
    module, its_ports = _build.build(params, inputs, "original")
    ports = its_ports()
    tokenizer = tokens.find_tokenizer(inputs.get("checkpoint"))
    if tokenizer is None:
        raise StageError(f"{inputs.get('checkpoint')} has no tokenizer, and score={asked['score']} reads text")
    read = _read_windows if model["task"] == "causal_lm" else _read_rows
    ids, valid, wanted, told = read(tokenizer, inputs["data"], asked, model, ports.inputs[0].shape[1])
    feeds = {port.name: reference.make_feed(port.name, ids, valid, model, module) for port in ports.inputs}
    reference.write_stacks(out / "inputs.npz", {**feeds, "valid": valid})
    np.savez(out / "wanted.npz", **wanted)
    scored = wanted.get("scored")
    with (
        torch.inference_mode(),
        StackWriter(out / "outputs.npz", int(scored.sum()) if scored is not None else len(ids)) as stack,
    ):
        place = 0
        for index in range(len(ids)):
            said = module(*(torch.from_numpy(feeds[port.name][index]) for port in ports.inputs))[0].numpy()
            for plane in [said] if scored is None else said[0][scored[index]]:
                stack.put(place, {ports.outputs[0].name: plane})
                place += 1
    return StageResult(realised={"scored_on": {"sha256": asked["data"], **told}})


def _read_windows(tokenizer, path: Path, asked: dict[str, Any], model: dict[str, Any], seq_len: int):
    """(ids (N,S), valid (N,S), {scored, target}, what is told) of running text, HF's sliding window."""
    import numpy as np

    from ane_sweep.worker.feeds import tokens

    tokenizer.no_padding()
    tokenizer.no_truncation()
    text_ids = tokenizer.encode(examples.running_text(path, path.name), add_special_tokens=False).ids
    if len(text_ids) < 2:
        raise StageError(f"{path.name} is {len(text_ids)} token long; perplexity needs a token that follows another")
    rows, scored = [], []
    end = 1  # tokens that are scored already, or have nothing before them
    for start in range(0, len(text_ids), asked["stride"]):
        rows.append(text_ids[start : start + seq_len])
        scored.append((end - 1 - start, len(rows[-1]) - 1))  # logits at these positions say the tokens after them
        end = start + len(rows[-1])
        if end == len(text_ids) or len(rows) == asked["rows"]:
            break
    ids, valid = tokens.pad_rows(tokenizer, rows, seq_len, model["arch"]["vocab_size"])
    places = np.arange(seq_len)
    where = np.stack([(places >= first) & (places < last) for first, last in scored])
    following = np.roll(ids, -1, axis=1)
    told = {
        "windows": len(rows),
        "positions": int(where.sum()),
        "tokens_of_file": len(text_ids),
        "stride": asked["stride"],
    }
    return ids, valid, {"scored": where, "target": following[where]}, told


def _read_rows(tokenizer, path: Path, asked: dict[str, Any], model: dict[str, Any], seq_len: int):
    """(ids, valid, {label} or {pair, grade}, what is told) of examples, each an input; of a pair two."""
    import numpy as np

    from ane_sweep.bridge.model_tasks import vocabulary
    from ane_sweep.worker.feeds import tokens

    table = examples.rows(path, path.name)
    taken = table[: asked["rows"]]
    texts = list(dict.fromkeys(text for row in taken for text in (row.text, row.second) if text is not None))
    wanted: dict[str, Any] = {}
    if asked["score"] != "embedding":
        texts = [row.text for row in taken]
        known = examples.known_labels(model["arch"])
        if asked["score"] == "accuracy":
            wanted["label"] = np.array([examples.place_of(str(row.label), known) for row in taken], np.int64)
    elif graded := [row for row in taken if row.second is not None and row.grade is not None]:
        wanted["pair"] = np.array([[texts.index(text) for text in (row.text, str(row.second))] for row in graded])
        wanted["grade"] = np.array([row.grade for row in graded], np.float64)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=seq_len)
    coded = [one.ids for one in tokenizer.encode_batch(texts)]
    ids, valid = tokens.pad_rows(tokenizer, coded, seq_len, vocabulary(model["task"], model["arch"]))
    cut = sum(len(one) == seq_len for one in coded)
    return (
        ids,
        valid,
        wanted,
        {"rows": len(taken), "rows_of_file": len(table), "texts": len(texts), "texts_that_fill_seq_len": cut},
    )
