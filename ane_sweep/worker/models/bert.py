"""BERT encoders (BERT, MiniLM). Task: encoder."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models._bert import FAMILY

# The pooler, pre-training heads and a position counter that old checkpoints carry.
IGNORED = (
    r"(bert\.)?pooler\.",
    r"cls\.",
    r"(bert\.)?embeddings\.position_ids$",
    r"(bert\.)?embeddings\.token_type_ids$",
)

SERVES = Serves(
    architectures={"BertModel": "encoder", "BertForMaskedLM": "encoder", "BertForPreTraining": "encoder"},
    model_types=("bert",),
    layers="num_hidden_layers",
    longest="max_position_embeddings",
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}
