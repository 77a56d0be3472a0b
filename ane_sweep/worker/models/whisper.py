"""Whisper's encoder. Task: audio_encoder.

input_features (1,80,3000), the logarithmic mel spectrum of 30 s -> last_hidden_state (1,1500,C).
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.worker.models import _ane, _hf, _tower
from ane_sweep.worker.models._ports import Port, Ports, Seeded, hidden_output

IGNORED = (r"(model\.)?decoder\.", r"proj_out\.")
RENAMED = ((r"^(model\.)?encoder\.", ""),)
SPECTRUM = Seeded(-1.0, 1.0)  # the processor clamps to the loudest less 8, adds 4 and divides by 4: two wide
NAMES = _tower.Names(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
    feed_forward=("fc1", "fc2"),
    norms=("self_attn_layer_norm", "final_layer_norm"),
)
EPS = 1e-5  # torch's own, as Hugging Face's module has it


def _config(model: dict):
    from transformers import WhisperConfig

    if model["task"] != "audio_encoder":
        raise ValueError(f"family whisper knows the task 'audio_encoder', not {model['task']!r}")
    return WhisperConfig(**model["arch"], attn_implementation=_hf.ATTENTION)


def skeleton(model: dict) -> nn.Module:
    """Hugging Face's WhisperEncoder."""
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return WhisperEncoder(_config(model))


def ports(model: dict, seq_len: int, options: Options = PLAIN) -> Ports:
    config = _config(model)
    frames = 2 * config.max_source_positions  # the second convolution has a stride of two
    spectrum = Port("input_features", (1, config.num_mel_bins, frames), "float32", seeded=SPECTRUM)
    return Ports((spectrum,), hidden_output(config.max_source_positions, config.d_model))


class Spectrum(nn.Module):
    """(1, mel, 2 S) -> (1, C, 1, S): two convolutions over time, and the positions."""

    def __init__(self, read: _ane.Reader):
        super().__init__()
        for name in ("conv1", "conv2"):
            weight, bias = read[f"{name}.weight"], read[f"{name}.bias"]  # (C_out, C_in, 3)
            self.register_parameter(f"{name}_weight", nn.Parameter(weight.unsqueeze(2), requires_grad=False))
            self.register_parameter(f"{name}_bias", nn.Parameter(bias, requires_grad=False))
        positions = read["embed_positions.weight"].t()[None, :, None, :].contiguous()
        self.positions = nn.Parameter(positions, requires_grad=False)

    def forward(self, spectrum: Tensor) -> Tensor:
        x = spectrum.unsqueeze(2)
        x = F.gelu(F.conv2d(x, self.conv1_weight, self.conv1_bias, padding=(0, 1)))
        x = F.gelu(F.conv2d(x, self.conv2_weight, self.conv2_bias, stride=(1, 2), padding=(0, 1)))
        return x + self.positions


def original(model: dict, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """Hugging Face's module as it is."""
    hf = _hf.filled(lambda: skeleton(model), state)
    return _tower.Original(hf, "input_features", "last_hidden_state").eval()


def split_einsum(model: dict, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
    """The same function in Neural Engine form, on the same tensors."""
    config, read = _config(model), _ane.Reader(state)
    heads, act = config.encoder_attention_heads, config.activation_function
    layers = [NAMES.layer(read.under(f"layers.{i}."), heads, EPS, act) for i in range(config.encoder_layers)]
    return _tower.Tower(Spectrum(read), layers, read.layer_norm("layer_norm", EPS)).eval()


VARIANTS = {"original": original, "split_einsum": split_einsum}
