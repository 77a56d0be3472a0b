"""DistilBERT, as an encoder or with its sequence classifier on the first token. Tasks: encoder, classifier."""

from torch import nn

from ane_sweep.bridge.families import Serves
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.worker.models import _encoder, _hf
from ane_sweep.worker.models._types import Model

# The masked-language-model head of the base checkpoints, and a position counter.
IGNORED = (r"vocab_(transform|layer_norm|projector)\.", r"(distilbert\.)?embeddings\.position_ids$")


def _build(model: Model) -> nn.Module:
    classes = {"encoder": "DistilBertModel", "classifier": "DistilBertForSequenceClassification"}
    _hf.check_task(model, *classes)
    return _hf.build(classes[model["task"]], FAMILY.configure(model))


FAMILY = _encoder.EncoderFamily(
    build=_build,
    config="DistilBertConfig",
    prefix=lambda task: "distilbert." if KINDS[task].leaves == "labels" else "",
    table="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    norm="embeddings.LayerNorm",
    layer="transformer.layer.{}.",
    attention=("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    feed_forward=("ffn.lin1", "ffn.lin2"),
    norms=("sa_layer_norm", "output_layer_norm"),
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
    longest="max_position_embeddings",
)
skeleton, ports = FAMILY.skeleton, FAMILY.ports
VARIANTS = {"original": FAMILY.variants[0], "split_einsum": FAMILY.variants[1]}
