"""examples: converts a file of the user to inputs of the model, and computes the outputs of fp32 torch for them.

params  model, weights, seq_len, examples {score, data: digest, form, rows, stride}, tokenizer (digest), options
inputs  checkpoint, data (the file)
leaves  inputs.npz: as from stage reference; outputs.npz: torch's outputs, one entry per scored position (causal_lm) or
        input; wanted.npz: `target` (the token that follows), `label` or `pair` and `grade`, and for causal_lm `scored`
        (N,S) bool

Running text is read in windows of seq_len tokens that advance by `stride`; each token is scored once, in the first
window that contains it, with at least seq_len - stride tokens before it. That is the sliding window of Hugging Face's
"Perplexity of fixed-length models", whose average weighs each window by its scored tokens; the text's first token has
nothing before it.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch

from ane_sweep.bridge import examples
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import StageError
from ane_sweep.worker import params
from ane_sweep.worker.feeds import tokens
from ane_sweep.worker.feeds.arrays import StackWriter
from ane_sweep.worker.feeds.own_module import Arrays
from ane_sweep.worker.models import _build
from ane_sweep.worker.models._ports import Ports
from ane_sweep.worker.params import Model
from ane_sweep.worker.stages import StageResult, reference

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STAGE = Stage(
    order=22, many="scored files", timeout_s=3600, base_gib=0.8, per_byte=1.3, base_s=1, per_gb_s=3, leaves="outputs",
    limited=False,
)  # fmt: skip


class FileParams(params.Params, frozen=True):
    """The scored file: kind of score, digest, the maximal number of rows (None: all), and the stride of windows of running text."""

    score: str
    data: str
    rows: int | None = None
    stride: int = 0


class Params(params.BuildParams, frozen=True, kw_only=True):
    """Parameters of this stage; the model's builder reads more of the same JSON."""

    examples: FileParams
    tokenizer: str | None = None


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Write inputs, outputs and expected answers. Raises StageError if the file has changed, or its text is too short."""
    settings = Params.read(params)
    file, model = settings.examples, settings.model
    if hashlib.sha256(inputs["data"].read_bytes()).hexdigest() != file.data:
        raise StageError(f"{inputs['data'].name} has changed since the plan was made; run the same command again")
    module, its_ports = _build.build(params, inputs, "original")
    ports: Ports = its_ports()
    tokenizer = tokens.find_tokenizer(inputs.get("checkpoint"))
    if tokenizer is None:
        raise StageError(f"{inputs.get('checkpoint')} has no tokenizer, and score={file.score} reads text")
    read = _read_windows if KINDS[model.task].reads == "windows" else _read_rows
    ids, valid, answers, counts = read(tokenizer, inputs["data"], file, model, ports.inputs[0].shape[1])
    builtins = msgspec.to_builtins(model)
    feeds = {port.name: reference.make_feed(port.name, ids, valid, builtins, module) for port in ports.inputs}
    reference.write_stacks(out / "inputs.npz", {**feeds, "valid": valid})
    np.savez(out / "wanted.npz", **answers)  # type: ignore[arg-type]
    scored = answers.get("scored")
    with (
        torch.inference_mode(),
        StackWriter(out / "outputs.npz", int(scored.sum()) if scored is not None else len(ids)) as stack,
    ):
        place = 0
        for index in range(len(ids)):
            made = module(*(torch.from_numpy(feeds[port.name][index]) for port in ports.inputs))[0].numpy()
            for plane in [made] if scored is None else made[0][scored[index]]:
                stack.put(place, {ports.outputs[0].name: plane})
                place += 1
    return StageResult(realised={"scored_on": {"sha256": file.data, **counts}})


Read = tuple[np.ndarray, np.ndarray, Arrays, dict[str, int]]


def _read_windows(tokenizer: "Tokenizer", path: Path, file: FileParams, model: Model, seq_len: int) -> Read:
    """Return ids (N,S), valid (N,S), {scored, target} and counts of running text, in sliding windows."""
    tokenizer.no_padding()
    tokenizer.no_truncation()
    text_ids = tokenizer.encode(examples.running_text(path, path.name), add_special_tokens=False).ids
    if len(text_ids) < 2:
        raise StageError(f"{path.name} is {len(text_ids)} token long; perplexity needs a token that follows another")
    rows, scored = [], []
    end = 1  # tokens that are scored already, or have nothing before them
    for start in range(0, len(text_ids), file.stride):
        rows.append(text_ids[start : start + seq_len])
        scored.append((end - 1 - start, len(rows[-1]) - 1))  # logits at these positions say the tokens after them
        end = start + len(rows[-1])
        if end == len(text_ids) or len(rows) == file.rows:
            break
    ids, valid = tokens.pad_rows(tokenizer, rows, seq_len, KINDS[model.task].count_ids(model.arch))
    places = np.arange(seq_len)
    where = np.stack([(places >= first) & (places < last) for first, last in scored])
    counts = {
        "windows": len(rows),
        "positions": int(where.sum()),
        "tokens_of_file": len(text_ids),
        "stride": file.stride,
    }
    return ids, valid, {"scored": where, "target": np.roll(ids, -1, axis=1)[where]}, counts


def _read_rows(tokenizer: "Tokenizer", path: Path, file: FileParams, model: Model, seq_len: int) -> Read:
    """Return ids (N,S), valid (N,S), {label} or {pair, grade} and counts of examples: one input each, or two for a pair."""
    table = examples.rows(path, path.name)
    taken = table[: file.rows]
    texts = list(dict.fromkeys(text for row in taken for text in (row.text, row.second) if text is not None))
    answers: Arrays = {}
    if file.score != "embedding":
        texts = [row.text for row in taken]
        known = examples.known_labels(model.arch)
        if file.score == "accuracy":
            answers["label"] = np.array([examples.find_output(str(row.label), known) for row in taken], np.int64)
    elif graded := [row for row in taken if row.second is not None and row.grade is not None]:
        answers["pair"] = np.array([[texts.index(text) for text in (row.text, str(row.second))] for row in graded])
        answers["grade"] = np.array([row.grade for row in graded], np.float64)
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=seq_len)
    rows = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    ids, valid = tokens.pad_rows(tokenizer, rows, seq_len, KINDS[model.task].count_ids(model.arch))
    cut = sum(len(row) == seq_len for row in rows)
    counts = {"rows": len(taken), "rows_of_file": len(table), "texts": len(texts), "texts_that_fill_seq_len": cut}
    return ids, valid, answers, counts
