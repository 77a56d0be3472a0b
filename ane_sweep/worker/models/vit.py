"""ViT, as an encoder or with its classifier on the first position. Tasks: image_encoder, image_classifier.

pixel_values (1,3,H,W) -> last_hidden_state (1, 1 + patches, C), or logits (1,num_labels).
"""

from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.families import Serves
from ane_sweep.bridge.kinds import KINDS
from ane_sweep.worker.models import _ane, _tower
from ane_sweep.worker.models._ports import Port, Ports, Seeded, hidden_output
from ane_sweep.worker.models._types import Model

PIXELS = Seeded(-1.0, 1.0)  # mean 0.5 and deviation 0.5 of the processor
NAMES = _tower.BlockNames(
    attention=("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
    feed_forward=("mlp.fc1", "mlp.fc2"),
    norms=("layernorm_before", "layernorm_after"),
)


class Vit(_tower.TowerFamily):
    def ports(self, model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
        config = self.configure(model)
        (height, width), (down, across) = _pair(config.image_size), _pair(config.patch_size)
        pixels = Port("pixel_values", (1, config.num_channels, height, width), "float32", seeded=PIXELS)
        if _classifies(model):
            return Ports((pixels,), (Port("logits", (1, config.num_labels), "float32"),))
        return Ports((pixels,), hidden_output(1 + (height // down) * (width // across), config.hidden_size))

    def split_einsum(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build the encoder in the form for the Neural Engine, with Hugging Face's weights."""
        config, classifies = self.configure(model), _classifies(model)
        read = _ane.Reader(state, "vit." if classifies else "")
        patch = "embeddings.patch_embeddings.projection"
        first, positions = read["embeddings.cls_token"][0, 0], read["embeddings.position_embeddings"][0]
        embedding = _tower.Patches(read[f"{patch}.weight"], read[f"{patch}.bias"], first, positions)
        heads, eps, act = config.num_attention_heads, config.layer_norm_eps, config.hidden_act
        layers = [NAMES.layer(read.under(f"layers.{i}."), heads, eps, act) for i in range(config.num_hidden_layers)]
        head = _ane.Reader(state).conv("classifier") if classifies else None
        return _tower.Tower(embedding, layers, read.layer_norm("layernorm", eps), head).eval()


def _classifies(model: Model) -> bool:
    return KINDS[model["task"]].leaves == "labels"


def _pair(size: int | list[int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


FAMILY = Vit(
    config="ViTConfig",
    builds={"image_encoder": "ViTModel", "image_classifier": "ViTForImageClassification"},
    # A pooler that no task uses, and for the encoder the classifier.
    ignored=(r"(vit\.)?pooler\.", r"classifier\."),
    # The names in files on the hub, and in transformers 5.
    renamed=(
        (r"^(vit\.)?encoder\.layer\.", r"\1layers."),
        (r"\.attention\.attention\.(query|key|value)\.", lambda found: f".attention.{found[1][0]}_proj."),
        (r"\.attention\.output\.dense\.", ".attention.o_proj."),
        (r"\.intermediate\.dense\.", ".mlp.fc1."),
        (r"\.output\.dense\.", ".mlp.fc2."),
    ),
)
SERVES = Serves(
    architectures={"ViTForImageClassification": "image_classifier", "ViTModel": "image_encoder"},
    model_types=("vit",),
    longest=None,
)
