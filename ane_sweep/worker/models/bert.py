"""BERT encoders (BERT, MiniLM). Task: encoder."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _encoder, _tower

FAMILY = _encoder.EncoderFamily(
    config="BertConfig",
    builds={"encoder": "BertModel"},
    # The pooler, pre-training heads and a position counter that old checkpoints carry.
    ignored=(r"(bert\.)?pooler\.", r"cls\.", r"(bert\.)?embeddings\.(position_ids|token_type_ids)$"),
    table="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    segments="embeddings.token_type_embeddings",
    norm="embeddings.LayerNorm",
    layer="encoder.layer.{}.",
    block=_tower.BlockNames(
        attention=("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
        feed_forward=("intermediate.dense", "output.dense"),
        norms=("attention.output.LayerNorm", "output.LayerNorm"),
    ),
    eps=lambda config: config.layer_norm_eps,
    activation="hidden_act",
)
SERVES = Serves(
    architectures={"BertModel": "encoder", "BertForMaskedLM": "encoder", "BertForPreTraining": "encoder"},
    model_types=("bert",),
)
