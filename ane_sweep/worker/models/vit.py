"""ViT, as an encoder or with its classifier on the first position. Tasks: image_encoder, image_classifier.

pixel_values (1,3,H,W) -> last_hidden_state (1, 1 + patches, C), or logits (1,num_labels).
"""

from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models import _ane, _hf, _tower
from ane_sweep.worker.models._ports import Port, Ports, Seeded

# A pooler that neither task reads, and for the encoder the classifier.
IGNORED = (r"(vit\.)?pooler\.", r"classifier\.")
# What the files on the hub call it, and transformers 5.
RENAMED = (
    (r"^(vit\.)?encoder\.layer\.", r"\1layers."),
    (r"\.attention\.attention\.(query|key|value)\.", lambda found: f".attention.{found[1][0]}_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
)
PIXELS = Seeded(-1.0, 1.0)  # mean 0.5 and deviation 0.5 of the processor
NAMES = _tower.Names(
    attention=("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
    feed_forward=("mlp.fc1", "mlp.fc2"),
    norms=("layernorm_before", "layernorm_after"),
)


def _config(model: dict):
    from transformers import ViTConfig

    if model["task"] not in ("image_encoder", "image_classifier"):
        raise ValueError(f"family vit knows the tasks image_encoder, image_classifier, not {model['task']!r}")
    return ViTConfig(**model["arch"], attn_implementation=_hf.ATTENTION)


def skeleton(model: dict) -> nn.Module:
    from transformers import ViTForImageClassification, ViTModel

    if model["task"] == "image_classifier":
        return ViTForImageClassification(_config(model))
    return ViTModel(_config(model), add_pooling_layer=False)


def ports(model: dict, seq_len: int, options: Options = PLAIN) -> Ports:
    config = _config(model)
    (height, width), (down, across) = _pair(config.image_size), _pair(config.patch_size)
    pixels = Port("pixel_values", (1, config.num_channels, height, width), "float32", seeded=PIXELS)
    if model["task"] == "image_classifier":
        return Ports((pixels,), (Port("logits", (1, config.num_labels), "float32"),))
    positions = 1 + (height // down) * (width // across)
    return Ports((pixels,), (Port("last_hidden_state", (1, positions, config.hidden_size), "float32"),))


def original(model: dict, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """Hugging Face's module as it is."""
    (given,) = ports(model, seq_len).outputs
    return _tower.Original(_hf.filled(lambda: skeleton(model), state), "pixel_values", given.name).eval()


def split_einsum(model: dict, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """The same function in Neural Engine form, on the same tensors."""
    config, classifies = _config(model), model["task"] == "image_classifier"
    read = _ane.Reader(state, "vit." if classifies else "")
    patch = "embeddings.patch_embeddings.projection"
    first, positions = read["embeddings.cls_token"][0, 0], read["embeddings.position_embeddings"][0]
    embedding = _tower.Patches(read[f"{patch}.weight"], read[f"{patch}.bias"], first, positions)
    heads, eps, act = config.num_attention_heads, config.layer_norm_eps, config.hidden_act
    layers = [NAMES.layer(read.under(f"layers.{i}."), heads, eps, act) for i in range(config.num_hidden_layers)]
    head = _ane.Reader(state).conv("classifier") if classifies else None
    return _tower.Tower(embedding, layers, read.layer_norm("layernorm", eps), head).eval()


def _pair(size: int | list[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


VARIANTS = {"original": original, "split_einsum": split_einsum}
