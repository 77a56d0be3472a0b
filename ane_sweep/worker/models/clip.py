"""CLIP's two towers, each a separate program. Tasks: image_encoder, text_encoder.

pixel_values (1,3,H,W) -> image_embeds (1,P); input_ids (1,77) -> text_embeds (1,P), from the position where the text
ends.
"""

from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.families import Serves
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.worker.models import _ane, _hf, _tower
from ane_sweep.worker.models._ports import Port, Ports, Seeded
from ane_sweep.worker.models._types import Dynamic, Model

PIXELS = Seeded(-1.79, 2.14)  # black of the reddest and white of the bluest channel, as the processor scales them
NAMES = _tower.BlockNames(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
    feed_forward=("mlp.fc1", "mlp.fc2"),
    norms=("layer_norm1", "layer_norm2"),
)
_HIGHEST_ID = 2  # a wrong eos_token_id of old files: their texts end with the highest id


class TextTower(_tower.Tower):
    """The causal tower of texts; its head reads the position where the text ends."""

    mask: Tensor

    def __init__(
        self, embedding: nn.Module, layers: list[_ane.Layer], norm: nn.Module, head: nn.Module, positions: int, eos: int
    ):
        super().__init__(embedding, layers, norm, head)
        self.eos = eos
        self.register_buffer(
            "mask", _hf.make_causal_mask(positions).transpose(2, 3).reshape(1, positions, 1, positions)
        )

    def masks(self) -> tuple[Tensor, ...]:
        return (self.mask,)

    def pick_position(self, inputs: Tensor, x: Tensor) -> Tensor:
        ids = inputs.int()
        ends = ids if self.eos == _HIGHEST_ID else (ids == self.eos).int()
        return x.index_select(3, ends.argmax(dim=-1))


class Clip(_tower.TowerFamily):
    def configure(self, model: Model) -> Dynamic:
        """Return the configuration of the task's tower, completed by the width of the common embedding space."""
        both = super().configure(model)
        config = both.text_config if _is_text(model) else both.vision_config
        config.projection_dim = both.projection_dim
        return config

    def ports(self, model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
        config = self.configure(model)
        if _is_text(model):
            end = config.vocab_size - 1 if config.eos_token_id == _HIGHEST_ID else config.eos_token_id
            ids = Port("input_ids", (1, config.max_position_embeddings), "int32", last=end)
            return Ports((ids,), (Port("text_embeds", (1, config.projection_dim), "float32"),))
        shape = (1, config.num_channels, config.image_size, config.image_size)
        pixels = Port("pixel_values", shape, "float32", seeded=PIXELS)
        return Ports((pixels,), (Port("image_embeds", (1, config.projection_dim), "float32"),))

    def split_einsum(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build the encoder in the form for the Neural Engine, with Hugging Face's weights."""
        config, is_text = self.configure(model), _is_text(model)
        read = _ane.Reader(state, "text_model." if is_text else "vision_model.")
        heads, eps, act = config.num_attention_heads, config.layer_norm_eps, config.hidden_act
        layers = [
            NAMES.layer(read.under(f"encoder.layers.{i}."), heads, eps, act) for i in range(config.num_hidden_layers)
        ]
        head = _ane.Reader(state).conv("text_projection" if is_text else "visual_projection")
        positions = read["embeddings.position_embedding.weight"]
        if is_text:
            table = _ane.Embedding(read["embeddings.token_embedding.weight"], positions)
            norm = read.layer_norm("final_layer_norm", eps)
            return TextTower(table, layers, norm, head, config.max_position_embeddings, config.eos_token_id).eval()
        patches = _tower.Patches(
            read["embeddings.patch_embedding.weight"], None, read["embeddings.class_embedding"], positions
        )
        embedding = nn.Sequential(patches, read.layer_norm("pre_layrnorm", eps))
        return _tower.Tower(embedding, layers, read.layer_norm("post_layernorm", eps), head).eval()


def _is_text(model: Model) -> bool:
    return bool(KINDS[model["task"]].reads)


FAMILY = Clip(
    config="CLIPConfig",
    builds={"image_encoder": "CLIPVisionModelWithProjection", "text_encoder": "CLIPTextModelWithProjection"},
    # The other tower, the projections between the two, and position counters of old checkpoints.
    ignored=(r"(text|vision)_model\.", r"(text|visual)_projection\.", r"logit_scale$"),
)
SERVES = Serves(
    architectures={"CLIPVisionModelWithProjection": "image_encoder", "CLIPTextModelWithProjection": "text_encoder"},
    model_types=("clip", "clip_vision_model", "clip_text_model"),
    parts={"image_encoder": "vision_config", "text_encoder": "text_config"},
    several={
        "CLIPModel": "CLIPModel holds two towers; model=clip-image,clip-text weights={name} takes both, each a program of its own"
    },
)
