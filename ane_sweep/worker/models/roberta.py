"""RoBERTa: BERT whose positions begin after the padding token's id. Task: encoder."""

from dataclasses import replace

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import bert

FAMILY = replace(
    bert.FAMILY,
    config="RobertaConfig",
    builds={"encoder": "RobertaModel"},
    # The pooler, the masked-language-model head and counters that old checkpoints carry.
    ignored=(r"(roberta\.)?pooler\.", r"lm_head\.", r"(roberta\.)?embeddings\.(position_ids|token_type_ids)$"),
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
    reserved=2,
)
