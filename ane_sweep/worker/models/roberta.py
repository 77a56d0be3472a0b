"""RoBERTa: BERT whose positions begin after the padding token's id. Task: encoder."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _bert

# The pooler, the masked-language-model head and counters that old checkpoints carry.
IGNORED = (r"(roberta\.)?pooler\.", r"lm_head\.", r"(roberta\.)?embeddings\.(position_ids|token_type_ids)$")

FAMILY = replace(
    _bert.FAMILY,
    build=_bert.encoder("Roberta"),
    config="RobertaConfig",
    position_offset=lambda config: config.pad_token_id + 1,
)
SERVES = Serves(
    architectures={
        "RobertaModel": "encoder",
        "RobertaForMaskedLM": "encoder",
        "XLMRobertaModel": "encoder",
        "XLMRobertaForMaskedLM": "encoder",
    },
    model_types=("roberta", "xlm-roberta"),
    layers="num_hidden_layers",
    longest="max_position_embeddings",
    reserved=2,
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}
