"""Runs Apple's DistilBERT (ane_transformers) in an environment of its own: `python THIS_FILE GIVEN.npz MADE.npz`.

GIVEN holds `config` (JSON), `state/<name>`, `input_ids` and `attention_mask` (N, S). MADE gets `logits` (N, labels) of
Apple's module, `hugging_face` of the module it was made from, and `versions` (JSON). Nothing of ane_sweep is imported.
"""

import json
import sys

import numpy as np
import torch
import transformers
from ane_transformers._version import __version__ as apple_version
from ane_transformers.huggingface import distilbert as apple
from transformers.models.distilbert import modeling_distilbert as plain


def main(given_path: str, made_path: str) -> None:
    given = np.load(given_path)
    config = transformers.DistilBertConfig(**json.loads(str(given["config"])), return_dict=False)
    state = {name[6:]: torch.from_numpy(given[name]) for name in given.files if name.startswith("state/")}
    made = {}
    for name, module in (("logits", apple), ("hugging_face", plain)):
        net = module.DistilBertForSequenceClassification(config).eval()
        own = dict(state)
        if module is apple:
            # Apple's hook on the inner module reshapes what lies beside it as well, in PyTorch 1.11; later ones hand
            # the hook a part of the state.
            apple.linear_to_conv2d_map(own, "", {}, True, [], [], [])
        missing = net.load_state_dict(own, strict=False).missing_keys
        if [key for key in missing if not key.endswith("position_ids")]:
            raise SystemExit(f"the state lacks {missing[:3]}")
        # int64, which both take as 1 for what is real; floats Apple adds to the scores as they are.
        ids, masks = (torch.from_numpy(given[name]).long() for name in ("input_ids", "attention_mask"))
        with torch.no_grad():
            made[name] = np.concatenate([net(i[None], m[None])[0].numpy() for i, m in zip(ids, masks)])
    versions = {"ane_transformers": apple_version, "transformers": transformers.__version__, "torch": torch.__version__}
    np.savez(made_path, **made, versions=json.dumps(versions))


if __name__ == "__main__":
    main(*sys.argv[1:])
