"""ConvNeXt: depthwise 7x7 convolutions with a transformer's feed-forward between them. Task: image_classifier.

pixel_values (1,3,H,W) -> logits (1,num_labels). Hugging Face's module turns each block to channels-last for its norm
and linear layers and back; `split_einsum` stays channels-first, the linear layers as 1x1 convolutions. It has no attention.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _ane, _tower
from ane_sweep.worker.models._ports import Port, Ports, Seeded
from ane_sweep.worker.models._types import Dynamic, Model

PIXELS = Seeded(-2.11, 2.64)  # black and white, as the processor scales them with ImageNet's mean and deviation
_EPS = 1e-6  # a literal in Hugging Face's module, but for the last norm


class ConvNextConv(nn.Module):
    """A convolution whose windows do not overlap or, with `padding`, a depthwise one."""

    def __init__(self, read: _ane.Reader, name: str, padding: int = 0):
        super().__init__()
        self.weight = nn.Parameter(read[f"{name}.weight"], requires_grad=False)
        self.bias = nn.Parameter(read[f"{name}.bias"], requires_grad=False)
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        if self.padding:
            return F.conv2d(x, self.weight, self.bias, padding=self.padding, groups=self.weight.shape[0])
        return F.conv2d(x, self.weight, self.bias, stride=self.weight.shape[2:])


class ConvNextBlock(nn.Module):
    """One block: x + scale * down(act(up(norm(depthwise(x))))), with a scale per channel."""

    def __init__(self, read: _ane.Reader, activation: str):
        super().__init__()
        self.depthwise, self.norm = ConvNextConv(read, "dwconv", padding=3), read.layer_norm("layernorm", _EPS)
        self.feed_forward = _ane.FeedForward(read.conv("pwconv1"), read.conv("pwconv2"), activation)
        scale = read.get("layer_scale_parameter")
        self.scale = None if scale is None else nn.Parameter(scale[None, :, None, None], requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        made = self.feed_forward(self.norm(self.depthwise(x)))
        return (made if self.scale is None else made * self.scale) + x


class SplitEinsumConvNext(nn.Module):
    """ConvNeXt on (1, C, H, W); the classifier reads the mean of all positions."""

    def __init__(self, config: Dynamic, state: dict[str, Tensor]):
        super().__init__()
        read = _ane.Reader(state, "convnext.")
        stem = read.under("embeddings.")
        body: list[nn.Module] = [ConvNextConv(stem, "patch_embeddings"), stem.layer_norm("layernorm", _EPS)]
        for number, depth in enumerate(config.depths):
            stage = read.under(f"encoder.stages.{number}.")
            if number:  # the first stage follows the stem without downsampling
                body += [stage.layer_norm("downsampling_layer.0", _EPS), ConvNextConv(stage, "downsampling_layer.1")]
            body += [ConvNextBlock(stage.under(f"layers.{i}."), config.hidden_act) for i in range(depth)]
        self.body, self.norm = nn.Sequential(*body), read.layer_norm("layernorm", config.layer_norm_eps)
        self.head = _ane.Reader(state).conv("classifier")

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        x = self.body(pixels).mean(dim=(2, 3), keepdim=True)
        return (self.head(self.norm(x)).squeeze(3).squeeze(2),)


class ConvNext(_tower.TowerFamily):
    def ports(self, model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
        config = self.configure(model)
        shape = (1, config.num_channels, config.image_size, config.image_size)
        pixels = Port("pixel_values", shape, "float32", seeded=PIXELS)
        return Ports((pixels,), (Port("logits", (1, config.num_labels), "float32"),))

    def split_einsum(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build ConvNeXt in the form split_einsum: channels-first throughout, with Hugging Face's weights."""
        return SplitEinsumConvNext(self.configure(model), state).eval()


FAMILY = ConvNext(config="ConvNextConfig", builds={"image_classifier": "ConvNextForImageClassification"})
SERVES = Serves(
    architectures={"ConvNextForImageClassification": "image_classifier"},
    model_types=("convnext",),
    layers="depths",
    longest=None,
    per_layer=1,
)
