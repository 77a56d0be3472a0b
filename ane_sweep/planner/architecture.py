"""Rules for a model's architecture (`arch` of an option, config.json of a checkpoint), checked before transformers
reads it: there a text in place of a size becomes a traceback, and a size too large an allocation.

Only names that a family here reads have a rule; other names in a checkpoint's config.json pass unchecked.
"""

from collections.abc import Mapping

from ane_sweep.bridge.key import NUMBER, Key

_LARGEST = 2**24  # of a vocabulary, a width or a number of layers
_SIZES = (
    "d_ff", "d_kv", "d_model", "dim", "encoder_attention_heads", "encoder_ffn_dim", "encoder_layers", "ffn_dim",
    "hidden_dim", "hidden_size", "max_position_embeddings", "max_source_positions", "n_embd", "n_head", "n_heads", "n_layer",
    "n_layers", "n_positions", "num_attention_heads", "num_channels", "num_decoder_layers", "num_heads", "num_hidden_layers",
    "num_labels", "num_layers", "num_mel_bins", "num_stages", "projection_dim", "relative_attention_max_distance",
    "relative_attention_num_buckets", "type_vocab_size", "vocab_size", "word_embed_proj_dim",
)  # fmt: skip
_SIZES_OR_NULL = (
    "head_dim", "intermediate_size", "n_ctx", "n_inner", "num_key_value_heads", "rotary_dim", "sliding_window", "window_size",
)  # fmt: skip
_NUMBERS = (
    "layer_norm_eps", "layer_norm_epsilon", "partial_rotary_factor", "rms_norm_eps", "rope_theta", "rotary_emb_base", "rotary_pct",
)  # fmt: skip
_FLAGS = (
    "apply_residual_connection_post_layernorm", "attention_bias", "do_layer_norm_before", "multi_query", "qk_layernorm",
    "tie_word_embeddings", "use_parallel_residual", "use_sliding_window",
)  # fmt: skip
_ACTIVATIONS = ("activation", "activation_function", "hidden_act")
# Those of transformers.activations.ACT2FN that have a name of their own in a published checkpoint (a test compares).
KNOWN_ACTIVATIONS = (
    "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_pytorch_tanh", "leaky_relu", "linear",
    "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu", "swish", "tanh",
)  # fmt: skip
_LARGE = f"nothing here is larger than {_LARGEST:,}"
RULES: dict[str, Key] = {
    **dict.fromkeys(_SIZES, Key((int,), "a size", least=1, most=_LARGEST, why=_LARGE)),
    **dict.fromkeys(_SIZES_OR_NULL, Key((int, type(None)), "a size", least=1, most=_LARGEST, why=_LARGE)),
    **dict.fromkeys(_NUMBERS, Key(NUMBER, "a number", least=0)),
    **dict.fromkeys(_FLAGS, Key((bool,), "yes or no")),
    **dict.fromkeys(_ACTIVATIONS, Key((str,), "an activation", KNOWN_ACTIVATIONS)),
    **dict.fromkeys(("depths", "hidden_sizes"), Key((list,), "a size for each stage", items=(int,))),
    **dict.fromkeys(("image_size", "patch_size"), Key((int, list), "a size, or height and width", items=(int,))),
    "feed_forward_proj": Key(
        (str,), "an activation", (*KNOWN_ACTIVATIONS, *(f"gated-{name}" for name in KNOWN_ACTIVATIONS))
    ),
}
_ANY = Key((bool, int, float, str, list, dict, type(None)), "what a family here does not read")
_WIDTHS = ("n_embd", "hidden_size", "dim", "d_model")
_HEADS = ("n_head", "num_attention_heads", "n_heads", "num_heads", "encoder_attention_heads")


def at(arch: Mapping[str, object], key: str) -> object:
    """Return the value of a key, or None if it is missing; a dotted key a.b is b inside a."""
    value: object = arch
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def total(arch: Mapping[str, object], key: str) -> object:
    """Return the value of a key, summed if the architecture lists it stage by stage."""
    value = at(arch, key)
    return sum(value) if isinstance(value, list) and all(isinstance(part, int) for part in value) else value


def problems(arch: Mapping[str, object]) -> list[str]:
    """Return one sentence for every value that no model could be built with."""
    return [problem for name, part in ({"arch": arch} | parts(arch)).items() for problem in _problems_of(name, part)]


def parts(arch: Mapping[str, object]) -> dict[str, Mapping[str, object]]:
    """Return the architectures nested in an architecture, by their dotted names."""
    named = ((name, arch.get(name)) for name in ("text_config", "vision_config"))
    return {f"arch.{name}": part for name, part in named if isinstance(part, dict)}


def _problems_of(name: str, arch: Mapping[str, object]) -> list[str]:
    found = [fault for key, value in arch.items() if (fault := RULES.get(key, _ANY).problem(f"{name}.{key}", value))]
    return found or [f"{name}.{problem}" for problem in _uneven(arch)]


def _uneven(arch: Mapping[str, object]) -> list[str]:
    """Return the problems of heads that do not divide their width evenly (unless it is given), or their groups."""
    sizes = {name: value for name, value in arch.items() if isinstance(value, int)}
    width, heads = (next((name for name in names if name in sizes), None) for names in (_WIDTHS, _HEADS))
    found = []
    if width and heads and not (sizes.get("head_dim") or sizes.get("d_kv")) and sizes[width] % sizes[heads]:
        found.append(f"{heads}={sizes[heads]}: does not divide {width}={sizes[width]}")
    if heads and sizes[heads] % (shared := sizes.get("num_key_value_heads") or 1):
        found.append(f"num_key_value_heads={shared}: does not divide {heads}={sizes[heads]}")
    return found
