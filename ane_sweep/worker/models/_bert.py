"""BERT's shape, which RoBERTa shares."""

from torch import nn

from ane_sweep.worker.models import _encoder, _hf


def encoder(name: str):
    """Builds transformers' `<name>Model` without its pooler: nothing downstream of last_hidden_state is in the graph."""

    def build(model: dict) -> nn.Module:
        import transformers

        if model["task"] != "encoder":
            raise ValueError(f"family {model['family']} knows the task 'encoder', not {model['task']!r}")
        config = getattr(transformers, f"{name}Config")(**model["arch"], attn_implementation=_hf.ATTENTION)
        return getattr(transformers, f"{name}Model")(config, add_pooling_layer=False)

    return build


FAMILY = _encoder.Family(
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
