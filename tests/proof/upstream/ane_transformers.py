"""What Apple's own split-einsum DistilBERT computes: `python -m tests.proof.upstream.ane_transformers OUT.npz`.

ane_transformers 0.1.3 imports beside transformers 4.30.2 alone, and asks for a PyTorch of 2022. So an environment is
made for the two, with this interpreter's PyTorch put behind them (0.1.3 uses nothing that has changed since), Apple's
module runs on seeded weights, and weights, inputs and outputs go into one file, which a test compares ours with.
"""

import argparse
import json
import subprocess
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ane_sweep.worker.models._types import Model

PINS = (
    "ane_transformers==0.1.3", "transformers==4.30.2", "tokenizers==0.13.3", "huggingface-hub==0.36.0", "numpy<2",
    "certifi", "charset_normalizer", "filelock", "fsspec", "idna", "packaging", "pyyaml", "regex", "requests", "safetensors",
    "tqdm", "typing_extensions", "urllib3",
)  # fmt: skip
SEED, SEQ_LEN = 7, 24
LENGTHS = (24, 17, 1)  # tokens that are real in each input; the rest is padding
CONFIG: dict[str, Any] = {
    "activation": "gelu", "dim": 32, "hidden_dim": 96, "max_position_embeddings": 40, "n_heads": 4, "n_layers": 2,
    "num_labels": 3, "vocab_size": 120,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.upstream.ane_transformers", description=__doc__)
    parser.add_argument("out", type=Path, help="the file to write, some 150 KB")
    make(parser.parse_args(argv).out)


def make(out: Path) -> None:
    """Write the file. Raises CalledProcessError when pip or Apple's module fails."""
    given = inputs()
    with tempfile.TemporaryDirectory() as folder:
        asked, made = Path(folder, "given.npz"), Path(folder, "made.npz")
        np.savez(asked, **given)
        script = Path(__file__).with_name("_apple_distilbert.py")
        subprocess.run([environment(Path(folder, "env")), "-P", str(script), str(asked), str(made)], check=True)
        with np.load(made) as stored:
            found: dict[str, Any] = dict(stored)
            out.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(out, **given, **found)


def inputs() -> dict[str, Any]:
    """Seeded weights, token ids and masks."""
    from ane_sweep.worker.models import weights

    random = np.random.default_rng(SEED)
    masks = (np.arange(SEQ_LEN)[None] < np.array(LENGTHS)[:, None]).astype(np.float32)
    ids = random.integers(0, CONFIG["vocab_size"], masks.shape, dtype=np.int64)
    state = weights.make_random_state(model(), SEED)
    return {
        "config": np.array(json.dumps(CONFIG)), "input_ids": ids, "attention_mask": masks,
        **{f"state/{name}": tensor.numpy() for name, tensor in state.items()},
    }  # fmt: skip


def model() -> Model:
    """What our own families call it."""
    arch = {**CONFIG, "id2label": {str(i): str(i) for i in range(CONFIG["num_labels"])}}
    del arch["num_labels"]
    return {"family": "distilbert", "task": "classifier", "arch": arch}


def environment(folder: Path) -> str:
    """The Python of a new environment with PINS, and behind them whatever this interpreter has (PyTorch)."""
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-P", "-m", "pip", "install", "--quiet", "--no-deps", *PINS], check=True)
    import torch

    command = [python, "-P", "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"]
    site = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    Path(site, "behind.pth").write_text(f"{Path(torch.__file__).parents[1]}\n", encoding="utf-8")
    return python


if __name__ == "__main__":
    main()
