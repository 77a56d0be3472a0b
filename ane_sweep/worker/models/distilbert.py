"""DistilBERT, as an encoder or with its sequence classifier on the first token. Tasks: encoder, classifier."""

from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _encoder, _tower

FAMILY = _encoder.EncoderFamily(
    config="DistilBertConfig",
    builds={"encoder": "DistilBertModel", "classifier": "DistilBertForSequenceClassification"},
    # The masked-language-model head of the base checkpoints, and a position counter.
    ignored=(r"vocab_(transform|layer_norm|projector)\.", r"(distilbert\.)?embeddings\.position_ids$"),
    prefix="distilbert.",
    table="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    norm="embeddings.LayerNorm",
    layer="transformer.layer.{}.",
    block=_tower.BlockNames(
        attention=("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
        feed_forward=("ffn.lin1", "ffn.lin2"),
        norms=("sa_layer_norm", "output_layer_norm"),
    ),
    eps=lambda config: 1e-12,  # a literal in Hugging Face's module, not a config key
    activation="activation",
    classifier=("pre_classifier", "classifier"),
)
SERVES = Serves(
    architectures={
        "DistilBertModel": "encoder",
        "DistilBertForMaskedLM": "encoder",
        "DistilBertForSequenceClassification": "classifier",
    },
    model_types=("distilbert",),
    layers="n_layers",
)
