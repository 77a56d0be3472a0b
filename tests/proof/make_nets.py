"""The packages for tests.proof.nets: nets of torchvision, timm, transformers and diffusers, random weights, as ct.convert makes them.

    pip install --no-deps torchvision timm
    python -m tests.proof.make_nets FOLDER [NAME ...]      writes FOLDER/NAME.mlpackage; says what could not be converted

Vision nets come in their published size; those of transformers and diffusers in small configurations.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

Net = tuple[Callable[[], nn.Module], tuple[int, ...]]
IMAGE = (1, 3, 224, 224)
TORCHVISION = (
    "resnet18", "densenet121", "efficientnet_b0", "mobilenet_v3_small", "shufflenet_v2_x1_0", "convnext_tiny", "swin_t",
    "vit_b_16", "maxvit_t", "regnet_y_400mf", "squeezenet1_1", "googlenet", "mnasnet0_5",
)  # fmt: skip
SEGMENTATION = ("fcn_resnet50", "lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large")
TIMM = (
    "beit_base_patch16_224", "coat_tiny", "deit_tiny_patch16_224", "efficientformer_l1", "fastvit_t8", "ghostnet_100",
    "levit_128s", "mixer_s16_224", "mobilevit_s", "mobilevitv2_050", "poolformer_s12", "repvit_m0_9", "res2net50_26w_4s",
    "xcit_nano_12_p16_224", "vit_small_patch16_224", "convnextv2_atto", "edgenext_xx_small", "hrnet_w18_small", "pvt_v2_b0",
)  # fmt: skip


class Plain(nn.Module):
    """Calls a net of Hugging Face with tensors, and returns the first output."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        made: tuple[Tensor, ...] = self.net(x, return_dict=False)
        return made[0]


class Segments(nn.Module):
    """Returns the main output of torchvision's segmentation nets."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)["out"]
        return out


class Unet(nn.Module):
    """Calls the UNet of diffusers."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.net(x, torch.tensor([7]), torch.ones(1, 12, 32), return_dict=False)[0]
        return made


def make_segments(name: str) -> nn.Module:
    import torchvision

    return Segments(torchvision.models.get_model(name, weights_backbone=None))


def list_nets() -> dict[str, Net]:
    """Return how each net is made, and the shape of its input."""
    for name in ("nms", "qnms"):  # torchvision's own library may be of another build of torch; no net here calls it
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import diffusers
    import timm
    import torchvision
    import transformers

    nets: dict[str, Net] = {}
    for name in TORCHVISION:
        nets[f"tv_{name}"] = partial(torchvision.models.get_model, name), IMAGE
    for name in SEGMENTATION:
        nets[f"tv_{name}"] = partial(make_segments, name), IMAGE
    for name in TIMM:
        nets[f"timm_{name}"] = partial(timm.create_model, name), IMAGE
    small = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}

    def hugging(kind: str, config: str, **given: object) -> Callable[[], nn.Module]:
        return lambda: Plain(getattr(transformers, kind)(getattr(transformers, config)(**given)))

    vision = {"hf_siglip_vision": "SiglipVision", "hf_dinov2": "Dinov2", "hf_deit": "DeiT", "hf_vit_mae": "ViTMAE"}
    for name, kind in vision.items():
        nets[name] = (hugging(f"{kind}Model", f"{kind}Config", **small, image_size=64, patch_size=8), (1, 3, 64, 64))
    nets["hf_segformer"] = (hugging("SegformerModel", "SegformerConfig"), (1, 3, 128, 128))
    nets["hf_mobilenet_v2"] = (hugging("MobileNetV2Model", "MobileNetV2Config"), (1, 3, 96, 96))
    nets["hf_poolformer"] = (hugging("PoolFormerModel", "PoolFormerConfig"), (1, 3, 128, 128))
    nets["hf_resnet"] = (hugging("ResNetModel", "ResNetConfig"), (1, 3, 96, 96))
    nets["hf_wav2vec2"] = (
        hugging("Wav2Vec2Model", "Wav2Vec2Config", **small, conv_dim=[64] * 7, num_conv_pos_embeddings=16), (1, 8000),
    )  # fmt: skip
    latent = {"block_out_channels": (32, 64), "norm_num_groups": 8}
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}

    kinds: dict[str, Callable[..., nn.Module]] = {
        name: getattr(diffusers, name) for name in ("AutoencoderKL", "UNet2DConditionModel")
    }

    def vae(part: str) -> nn.Module:
        made: nn.Module = getattr(kinds["AutoencoderKL"](**latent, **blocks, layers_per_block=1), part)
        return made

    nets["df_vae_encoder"] = (lambda: vae("encoder"), (1, 3, 64, 64))
    nets["df_vae_decoder"] = (lambda: vae("decoder"), (1, 4, 16, 16))
    nets["df_unet"] = (
        lambda: Unet(
            kinds["UNet2DConditionModel"](
                **latent, sample_size=32, layers_per_block=1, cross_attention_dim=32, attention_head_dim=8,
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
            )
        ),
        (1, 4, 32, 32),
    )  # fmt: skip
    return nets


def main(words: Sequence[str]) -> int:
    import coremltools as ct

    logging.disable(logging.WARNING)
    trace: Callable[..., torch.jit.ScriptModule] = torch.jit.trace  # which carries no types
    folder, names = Path(words[0]), words[1:]
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, (make, shape)) in enumerate(list_nets().items()):
        if names and name not in names:
            continue
        torch.manual_seed(number)
        try:
            traced = trace(make().eval(), torch.randn(shape), check_trace=False)
            inputs = [ct.TensorType("x", shape)]
            ct.convert(traced, inputs=inputs, minimum_deployment_target=ct.target.iOS17).save(
                folder / f"{name}.mlpackage"
            )
            print(f"{name}: made", flush=True)
        except Exception as error:  # a net that the converter refuses is said and left out
            print(f"{name}: not converted: {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
