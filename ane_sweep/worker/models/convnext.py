"""ConvNeXt: depthwise 7x7 convolutions, and between them the feed-forward of a transformer. Task: image_classifier.

pixel_values (1,3,H,W) -> logits (1,num_labels). Hugging Face's module turns each block to channels-last for its norm
and linear layers and back; `split_einsum` stays channels-first, the linear layers as 1x1 convolutions. It has no attention.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _ane, _hf, _tower
from ane_sweep.worker.models._ports import Port, Ports, Seeded
from ane_sweep.worker.models._types import Dynamic, Model

IGNORED = ()
SERVES = Serves(
    architectures={"ConvNextForImageClassification": "image_classifier"},
    model_types=("convnext",),
    layers="depths",
    longest=None,
    per_layer=1,
)
PIXELS = Seeded(-2.11, 2.64)  # black and white, as the processor scales them with ImageNet's mean and deviation
_EPS = 1e-6  # a literal in Hugging Face's module, but for the last norm


def _config(model: Model) -> Dynamic:
    _hf.check_task(model, "image_classifier")
    return _hf.configure("ConvNextConfig", model)


def skeleton(model: Model) -> nn.Module:
    """Build Hugging Face's ConvNextForImageClassification."""
    return _hf.build("ConvNextForImageClassification", _config(model))


def ports(model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
    config = _config(model)
    pixels = Port(
        "pixel_values", (1, config.num_channels, config.image_size, config.image_size), "float32", seeded=PIXELS
    )
    return Ports((pixels,), (Port("logits", (1, config.num_labels), "float32"),))


def original(model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """Build Hugging Face's module with its own layers."""
    return _tower.OriginalTower(_hf.build_filled(lambda: skeleton(model), state), "pixel_values", "logits").eval()


class ConvNextConv(nn.Module):
    """A convolution without overlap or, with `padding`, a depthwise one."""

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
    """x + scale * down(act(up(norm(depthwise(x))))), a scale for each channel."""

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
    """ConvNeXt on (1, C, H, W), with the classifier on the mean of all positions."""

    def __init__(self, body: list[nn.Module], norm: nn.Module, head: nn.Module):
        super().__init__()
        self.body, self.norm, self.head = nn.Sequential(*body), norm, head

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        x = self.body(pixels).mean(dim=(2, 3), keepdim=True)
        return (self.head(self.norm(x)).squeeze(3).squeeze(2),)


def split_einsum(model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """Build the same function, channels-first throughout."""
    config, read = _config(model), _ane.Reader(state, "convnext.")
    stem = read.under("embeddings.")
    body: list[nn.Module] = [ConvNextConv(stem, "patch_embeddings"), stem.layer_norm("layernorm", _EPS)]
    for number, depth in enumerate(config.depths):
        stage = read.under(f"encoder.stages.{number}.")
        if number:  # the first stage follows the stem without downsampling
            body += [stage.layer_norm("downsampling_layer.0", _EPS), ConvNextConv(stage, "downsampling_layer.1")]
        body += [ConvNextBlock(stage.under(f"layers.{i}."), config.hidden_act) for i in range(depth)]
    norm = read.layer_norm("layernorm", config.layer_norm_eps)
    return SplitEinsumConvNext(body, norm, _ane.Reader(state).conv("classifier")).eval()


VARIANTS = {"original": original, "split_einsum": split_einsum}
