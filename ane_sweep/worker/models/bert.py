"""BERT encoders (BERT, MiniLM). Task: encoder."""

from ane_sweep.worker.models._bert import FAMILY

# The pooler, pre-training heads and a position counter that old checkpoints carry.
IGNORED = (
    r"(bert\.)?pooler\.",
    r"cls\.",
    r"(bert\.)?embeddings\.position_ids$",
    r"(bert\.)?embeddings\.token_type_ids$",
)

skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}
