"""CLIP's two towers, each a program of its own. Tasks: image_encoder, text_encoder.

pixel_values (1,3,H,W) -> image_embeds (1,P); input_ids (1,77) -> text_embeds (1,P), of the position where the text ends.
"""

from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models import _ane, _hf, _tower
from ane_sweep.worker.models._ports import Port, Ports, Seeded

# The other tower, what joins the two, and position counters of old checkpoints.
IGNORED = (r"(text|vision)_model\.", r"(text|visual)_projection\.", r"logit_scale$")
PIXELS = Seeded(-1.79, 2.14)  # black of the reddest and white of the bluest channel, as the processor scales them
NAMES = _tower.Names(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
    feed_forward=("mlp.fc1", "mlp.fc2"),
    norms=("layer_norm1", "layer_norm2"),
)
_HIGHEST_ID = 2  # an eos_token_id that files written before it was right have: there the end is the highest id


def _config(model: dict):
    """Of the tower that the task asks for; the width of the common space is said beside the towers."""
    from transformers import CLIPConfig

    if model["task"] not in ("image_encoder", "text_encoder"):
        raise ValueError(f"family clip knows the tasks image_encoder, text_encoder, not {model['task']!r}")
    both = CLIPConfig(**model["arch"], attn_implementation=_hf.ATTENTION)
    config = both.text_config if _reads(model) else both.vision_config
    config.projection_dim = both.projection_dim
    return config


def _reads(model: dict) -> bool:
    return model["task"] == "text_encoder"


def skeleton(model: dict) -> nn.Module:
    import transformers

    config = _config(model)
    tower = transformers.CLIPTextModelWithProjection if _reads(model) else transformers.CLIPVisionModelWithProjection
    return tower(config)


def ports(model: dict, seq_len: int, options: Options = PLAIN) -> Ports:
    config = _config(model)
    if _reads(model):
        ids = Port("input_ids", (1, config.max_position_embeddings), "int32", last=_end(config))
        return Ports((ids,), (Port("text_embeds", (1, config.projection_dim), "float32"),))
    shape = (1, config.num_channels, config.image_size, config.image_size)
    pixels = Port("pixel_values", shape, "float32", seeded=PIXELS)
    return Ports((pixels,), (Port("image_embeds", (1, config.projection_dim), "float32"),))


def _end(config) -> int:
    """The id with which a text ends."""
    return config.vocab_size - 1 if config.eos_token_id == _HIGHEST_ID else config.eos_token_id


def original(model: dict, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """Hugging Face's module, the causal mask given so that it need not build it."""
    (taken,), (given,) = ports(model, seq_len).inputs, ports(model, seq_len).outputs
    mask = _hf.causal_mask(taken.shape[1]) if _reads(model) else None
    return _tower.Original(_hf.filled(lambda: skeleton(model), state), taken.name, given.name, mask).eval()


class TextTower(_tower.Tower):
    """Causal, and looked at where the text ends."""

    def __init__(self, *parts, positions: int, eos: int):
        super().__init__(*parts)
        self.eos = eos
        self.register_buffer("mask", _hf.causal_mask(positions).transpose(2, 3).reshape(1, positions, 1, positions))

    def masks(self) -> tuple[Tensor, ...]:
        return (self.mask,)

    def picked(self, inputs: Tensor, x: Tensor) -> Tensor:
        ids = inputs.int()
        ends = ids if self.eos == _HIGHEST_ID else (ids == self.eos).int()
        return x.index_select(3, ends.argmax(dim=-1))


def split_einsum(model: dict, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """The same function in Neural Engine form, on the same tensors."""
    config, reads = _config(model), _reads(model)
    read = _ane.Reader(state, "text_model." if reads else "vision_model.")
    heads, eps, act = config.num_attention_heads, config.layer_norm_eps, config.hidden_act
    layers = [NAMES.layer(read.under(f"encoder.layers.{i}."), heads, eps, act) for i in range(config.num_hidden_layers)]
    head = _ane.Reader(state).conv("text_projection" if reads else "visual_projection")
    positions = read["embeddings.position_embedding.weight"]
    if reads:
        embedding = _ane.Embedding(read["embeddings.token_embedding.weight"], positions)
        norm = read.layer_norm("final_layer_norm", eps)
        count = config.max_position_embeddings
        return TextTower(embedding, layers, norm, head, positions=count, eos=config.eos_token_id).eval()
    patches = _tower.Patches(
        read["embeddings.patch_embedding.weight"], None, read["embeddings.class_embedding"], positions
    )
    embedding = nn.Sequential(patches, read.layer_norm("pre_layrnorm", eps))
    return _tower.Tower(embedding, layers, read.layer_norm("post_layernorm", eps), head).eval()


VARIANTS = {"original": original, "split_einsum": split_einsum}
