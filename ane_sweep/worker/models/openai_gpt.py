"""GPT-1: a norm after each half of a block, and none before the head. Its Conv1D layers store (in, out)."""

from torch import Tensor, nn

from ane_sweep.bridge.building import PLAIN, Options
from ane_sweep.bridge.families import Serves
from ane_sweep.worker import rewrites
from ane_sweep.worker.models import _decoder, _hf, _layouts
from ane_sweep.worker.models._types import Model


class Gpt(_decoder.DecoderFamily):
    def original(self, model: Model, state: dict[str, Tensor], seq_len: int, options: Options = PLAIN) -> nn.Module:
        hf = _hf.build_filled(lambda: self.skeleton(model), state)
        module = OriginalGpt(hf, seq_len - 1 if options.head == "last" else None)
        return rewrites.rewrite_module(module, self.ports(model, seq_len, options), options).eval()


class OriginalGpt(nn.Module):
    """Hugging Face's module with its own causal mask, as it accepts no mask of rank 4."""

    def __init__(self, hf: nn.Module, last: int | None):
        super().__init__()
        self.hf, self.last = hf, last

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        name = "inputs_embeds" if tokens.is_floating_point() else "input_ids"
        hidden = self.hf.get_submodule("transformer")(**{name: tokens}, return_dict=False)[0]
        head = self.hf.get_submodule("lm_head")
        return (head(hidden if self.last is None else hidden[:, self.last : self.last + 1]),)


FAMILY = Gpt(
    config="OpenAIGPTConfig",
    builds={"causal_lm": "OpenAIGPTLMHeadModel"},
    ignored=(r"(transformer\.)?h\.\d+\.attn\.bias$", r"(transformer\.)?position_ids$"),
    table="transformer.tokens_embed",
    positions="transformer.positions_embed",
    layer="transformer.h.{}.",
    norms=("ln_1", "ln_2"),
    attention=_layouts.stacked_projection("attn.c_attn", "attn.c_proj", transposed=True),
    feed_forward=("mlp.c_fc", "mlp.c_proj"),
    transposed=True,
    final=None,
    activation="gelu_new",
    wiring=lambda config: "post",
)
SERVES = Serves(
    architectures={"OpenAIGPTLMHeadModel": "causal_lm", "OpenAIGPTModel": "causal_lm"},
    model_types=("openai-gpt",),
    layers="n_layer",
    longest="n_positions",
    own_mask=True,
)
