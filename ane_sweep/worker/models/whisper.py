"""Whisper's encoder. Task: audio_encoder.

input_features (1,80,3000), the logarithmic mel spectrum of 30 s -> last_hidden_state (1,1500,C).
"""

import torch.nn.functional as F
from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.families import Serves
from ane_sweep.worker.models import _ane, _tower
from ane_sweep.worker.models._ports import Port, Ports, Seeded, hidden_output
from ane_sweep.worker.models._types import Model

SPECTRUM = Seeded(-1.0, 1.0)  # the processor clamps to the loudest less 8, adds 4 and divides by 4: two wide
NAMES = _tower.BlockNames(
    attention=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"),
    feed_forward=("fc1", "fc2"),
    norms=("self_attn_layer_norm", "final_layer_norm"),
)
EPS = 1e-5  # torch's own, as Hugging Face's module has it


class Spectrum(nn.Module):
    """The embedding of a spectrum, (1, mel, 2 S) -> (1, C, 1, S): two convolutions over time, and the positions."""

    conv1_weight: Tensor
    conv1_bias: Tensor
    conv2_weight: Tensor
    conv2_bias: Tensor

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


class Whisper(_tower.TowerFamily):
    def ports(self, model: Model, seq_len: int, options: Options = PLAIN) -> Ports:
        config = self.configure(model)
        frames = 2 * config.max_source_positions  # the second convolution has a stride of two
        spectrum = Port("input_features", (1, config.num_mel_bins, frames), "float32", seeded=SPECTRUM)
        return Ports((spectrum,), hidden_output(config.max_source_positions, config.d_model))

    def split_einsum(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        """Build the encoder in the form for the Neural Engine, with Hugging Face's weights."""
        config, read = self.configure(model), _ane.Reader(state)
        heads, act = config.encoder_attention_heads, config.activation_function
        layers = [NAMES.layer(read.under(f"layers.{i}."), heads, EPS, act) for i in range(config.encoder_layers)]
        return _tower.Tower(Spectrum(read), layers, read.layer_norm("layer_norm", EPS)).eval()


FAMILY = Whisper(
    config="WhisperConfig",
    builds={"audio_encoder": "models.whisper.modeling_whisper.WhisperEncoder"},
    ignored=(r"(model\.)?decoder\.", r"proj_out\."),
    renamed=((r"^(model\.)?encoder\.", ""),),
)
SERVES = Serves(
    architectures={"WhisperForConditionalGeneration": "audio_encoder", "WhisperModel": "audio_encoder"},
    model_types=("whisper",),
    layers="encoder_layers",
    longest="max_source_positions",
)
