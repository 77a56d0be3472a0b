"""The names of BERT's tensors, which RoBERTa shares."""

from collections.abc import Callable

from torch import nn

from ane_sweep.worker.models import _encoder, _hf
from ane_sweep.worker.models._types import Model


def encoder(name: str) -> Callable[[Model], nn.Module]:
    """Return a builder of transformers' `<name>Model` without its pooler, which last_hidden_state does not need."""

    def build(model: Model) -> nn.Module:
        _hf.check_task(model, "encoder")
        return _hf.build(f"{name}Model", _hf.configure(f"{name}Config", model), add_pooling_layer=False)

    return build


FAMILY = _encoder.EncoderFamily(
    build=encoder("Bert"),
    config="BertConfig",
    table="embeddings.word_embeddings",
    positions="embeddings.position_embeddings",
    segments="embeddings.token_type_embeddings",
    norm="embeddings.LayerNorm",
    layer="encoder.layer.{}.",
    attention=("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    feed_forward=("intermediate.dense", "output.dense"),
    norms=("attention.output.LayerNorm", "output.LayerNorm"),
    eps=lambda config: config.layer_norm_eps,
    activation="hidden_act",
)
