"""Greedy decoding through the program against Hugging Face's own, and 1,821 sentences in a loop against torch"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ane_sweep.bridge import protocol
from ane_sweep.data import sentences
from ane_sweep.planner import options
from ane_sweep.planner.paths import conf_dir
from ane_sweep.talk import cells
from ane_sweep.talk import divergence as parting
from ane_sweep.talk.session import Event, Session
from tests.bench import Row

PROMPT = "Once upon a time"
TOKENS = 40
WRITERS = {"tale": (), "gpt2": ("weights=random",)}  # what ships, with its weights; the architecture at its size
CLASSIFIERS = {"mood": (), "tiny-distilbert": ("weights=random",)}
COUNT = 1821  # SST-2's test split, as in experiments-coreml-ane-distilbert
PLAIN: dict[str, Any] = {
    "sampling": False, "repetition_penalty": None, "seed": 0, "samples": 1, "stop": [], "max_new_tokens": TOKENS, "keep": True,
}  # fmt: skip


def run() -> list[Row]:
    rows = [row for name, more in WRITERS.items() if _ships(name) for row in written([f"model={name}", *more])]
    name = next(name for name in CLASSIFIERS if _ships(name))
    return [*rows, classified([f"model={name}", *CLASSIFIERS[name]])]


def _ships(model: str) -> bool:
    return options.file_of(conf_dir() / "model", model) is not None


def written(words: list[str]) -> list[Row]:
    """A row a precision."""
    rows = []
    with tempfile.TemporaryDirectory() as out:
        for precision in ("fp32", "fp16"):
            asked = [*words, f"precision={precision}", "seq_len=64"]
            with cells.prepare_partners("generate", [], asked, [], Path(out), 1, None) as ((one,), folder):
                found = beside_hugging_face(one, folder)
            what = f"{' '.join(words)} {precision}: greedy tokens that are Hugging Face's"
            rows.append(Row(what, f"{found.same} of {TOKENS}; {_gap(found)}"))
    return rows


def _gap(found: parting.Divergence) -> str:
    most = f"logits differ by {found.differ_most:.2g} at most"
    if found.a is None or found.b is None or found.a.gap is None or found.b.gap is None:
        return most
    return f"{most}, the other choice is {found.a.gap:.2g} behind, {found.b.gap:.2g} there"


def beside_hugging_face(partner: cells.Partner, folder: Path) -> parting.Divergence:
    """Where the cell's text and that of transformers' own module, in fp32 and with its own cache, part."""
    with Session("generate", partner.params, partner.inputs, folder / "a") as session:
        (sample,) = [event for event in session.ask(prompt=PROMPT, **PLAIN) if event["event"] == "sample"]
        theirs = hugging_face(partner, folder / "theirs.npy")
        return parting.find_divergence(sample, theirs, (session.out / "logits-0.npy", folder / "theirs.npy"))


def hugging_face(partner: cells.Partner, logits: Path) -> Event:
    """A sample as a session tells it; its logits are left in a file."""
    import numpy as np
    import torch

    from ane_sweep.worker import models
    from ane_sweep.worker.models import _hf, weights
    from ane_sweep.worker.talk import tokens

    model = partner.params["model"]
    state = weights.load_state(partner.params["weights"], partner.inputs.get("checkpoint"), model)
    module: Any = _hf.build_filled(lambda: models.get(model["family"]).skeleton(model), state).eval()
    tokenizer, _ = tokens.load_tokenizer(partner.params, partner.inputs)
    ids = torch.tensor([tokenizer(PROMPT)["input_ids"]])
    end = None if partner.params["weights"]["kind"] == "random" else module.config.eos_token_id
    with torch.inference_mode():
        made = module.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=TOKENS, pad_token_id=0, eos_token_id=end,
            use_cache=True, return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
    np.save(logits, torch.cat(made.logits).numpy())
    new = made.sequences[0, ids.shape[1] :].tolist()
    return {"ids": new, "pieces": [str(tokenizer.decode([one])) for one in new]}


def classified(words: list[str]) -> Row:
    """Both runtimes, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.txt"
        texts.write_text("\n".join(sentences()), encoding="utf-8")
        asked = [*words, "variant=split_einsum", "runtime=reference,torch_eager", f"file={texts}", f"count={COUNT}"]
        command = [
            sys.executable,
            "-P",
            "-m",
            "ane_sweep",
            "classify",
            "--compare",
            *asked,
            f"out={folder}/out",
            "--json",
        ]
        done = subprocess.run(command, capture_output=True, text=True, env=protocol.python_environment(), check=True)
    said = json.loads(done.stdout)
    ours, theirs = (said[side]["timing"] for side in "ab")
    same = said["texts"] - len(said["differ"])
    return Row(
        f"{' '.join(words)}: {COUNT:,} predictions in a loop, reference runtime on this CPU against torch; the same label",
        f"{ours['per_s']:.1f} a second; {same} of {said['texts']} texts", f"{theirs['per_s']:.1f} a second",
        f"{ours['per_s'] / theirs['per_s']:.2f}",
    )  # fmt: skip
