"""Dense decoders: Llama 1 to 3.x and its like, Mistral, Granite, SmolLM3, Qwen2, Qwen3, Phi-3, Gemma 2 and 3, GPT-2."""

from __future__ import annotations

from dataclasses import replace

from engine.errors import LabError
from engine.spec.common import attention, build, mlp, rotary
from engine.spec.config import Fields, divisible
from engine.spec.extras import siglip_vision
from engine.spec.parts import Attention, Mlp
from engine.spec.types import Layer, Norm, Spec

# What Gemma 3's published configs leave to their code's defaults.
GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262_208,
    "sliding_window": 4096,
    "max_position_embeddings": 131_072,
}


def llama(config: Fields) -> Spec:
    """Llama, SmolLM2, TinyLlama: biases only where the config asks for them."""
    bias = config.flag("attention_bias", default=False)
    mixer = attention(config, qkv_bias=bias, o_bias=bias)
    layer = Layer(mixer, mlp(config, bias=config.flag("mlp_bias", default=False)))
    return build(config, [layer] * config.layers())


def mistral(config: Fields) -> Spec:
    """Mistral: like Llama, with a sliding window in all layers where the config has one (v0.1), or none (v0.3)."""
    layer = Layer(attention(config, window=window(config)), mlp(config))
    return build(config, [layer] * config.layers())


def qwen2(config: Fields) -> Spec:
    """Qwen2 / Qwen2.5: biases on q, k and v."""
    full, windowed = attention(config, qkv_bias=True), attention(config, qkv_bias=True, window=window(config))
    return build(config, [Layer(mixer, mlp(config)) for mixer in by_window_layers(config, full, windowed)])


def qwen3(config: Fields) -> Spec:
    """Qwen3: q and k are normalised over the head, head_dim is stated, no biases unless asked for."""
    bias = config.flag("attention_bias", default=False)
    full = attention(config, qkv_bias=bias, o_bias=bias, qk_norm=True)
    windowed = attention(config, qkv_bias=bias, o_bias=bias, qk_norm=True, window=window(config))
    return build(config, [Layer(mixer, mlp(config)) for mixer in by_window_layers(config, full, windowed)])


def phi3(config: Fields) -> Spec:
    """Phi-3 / Phi-4: Llama's shapes; the file stores q, k, v fused and gate, up fused, which changes no count."""
    layer = Layer(attention(config, window=window(config)), mlp(config))
    return build(config, [layer] * config.layers())


def gemma3(top: Fields) -> Spec:
    """Gemma 3: five window layers to one full one, q/k norm, four norms a layer, a tied head, maybe a vision tower."""
    config = (top.part("text_config") or top).with_defaults(GEMMA3_DEFAULTS)
    types = config.names("layer_types")
    if types is None:
        pattern = config.size("sliding_window_pattern", default=6)
        types = ["full_attention" if (i + 1) % pattern == 0 else "sliding_attention" for i in range(config.layers())]
    full = attention(config, qk_norm=True)
    # Window layers turn by a base of their own: rope_local_base_freq, or an entry of rope_parameters.
    local = Fields({**config.values, "rope_theta": config.number("rope_local_base_freq", default=10_000.0)})
    near = rotary(Fields({**local.values, "rope_scaling": None}), full.head_dim, layer_type="sliding_attention")
    windowed = replace(full, window=config.size("sliding_window"), rotary=near)
    layers = [
        Layer(m, mlp(config, default_activation="gelu_pytorch_tanh")) for m in by_types(config, types, full, windowed)
    ]
    norm = Norm(eps=config.number("rms_norm_eps", default=1e-6), sandwich=True)
    extras = [siglip_vision(out=config.size("hidden_size"))] if top.has("text_config") else []
    return build(config, layers, norm=norm, outer=top, extras=extras, tied=True)


def gemma2(config: Fields) -> Spec:
    """Gemma 2: a window in every other layer, the first included, four norms a layer, a tied head."""
    types = config.names("layer_types")
    if types is None:
        types = ["full_attention" if index % 2 else "sliding_attention" for index in range(config.layers())]
    full = attention(config)
    windowed = replace(full, window=config.size("sliding_window"))
    part = mlp(config, default_activation="gelu_pytorch_tanh")
    norm = Norm(eps=config.number("rms_norm_eps", default=1e-6), sandwich=True)
    return build(config, [Layer(m, part) for m in by_types(config, types, full, windowed)], norm=norm, tied=True)


def smollm3(config: Fields) -> Spec:
    """SmolLM3: Llama's shapes, with no rotary positions in every fourth layer (no_rope_layers: 0 stands for none)."""
    bias = config.flag("attention_bias", default=False)
    turned = attention(config, qkv_bias=bias, o_bias=bias)
    interval = config.size("no_rope_layer_interval", default=4)
    turns = config.indices("no_rope_layers") or [(i + 1) % interval for i in range(config.layers())]
    if len(turns) != config.layers():
        raise LabError(
            "The config's no_rope_layers has {count} entries; it needs one for each of its {layers} layers.",
            count=len(turns),
            layers=config.layers(),
        )
    part = mlp(config, bias=config.flag("mlp_bias", default=False))
    return build(config, [Layer(turned if t else replace(turned, rotary=None), part) for t in turns], tied=True)


def gpt2(config: Fields) -> Spec:
    """GPT-2: learned positions, layer norms with bias, biases everywhere, an ungated feed-forward part of 4 h."""
    hidden, heads = config.size("n_embd"), config.size("n_head")
    dim = divisible(hidden, heads, key="n_embd", by_key="n_head")
    mixer = Attention(heads, heads, dim, qkv_bias=True, o_bias=True)
    width = config.size("n_inner", default=4 * hidden)
    activation = config.text("activation_function", default="gelu_new")
    layer = Layer(mixer, Mlp(width, gated=False, bias=True, activation=activation))
    norm = Norm("layer", eps=config.number("layer_norm_epsilon", default=1e-5), bias=True)
    positions = config.size("n_positions", "n_ctx", default=1024)
    return build(config, [layer] * config.layers("n_layer"), norm=norm, positions=positions, tied=True)


def window(config: Fields) -> int | None:
    """The sliding window in use, or None. Qwen lists one and switches it off with use_sliding_window."""
    if not config.flag("use_sliding_window", default=True) or not config.has("sliding_window"):
        return None
    return config.size("sliding_window")


def by_window_layers(config: Fields, full: Attention, windowed: Attention) -> list[Attention]:
    """Qwen's rule: layer_types where given, else the window from layer max_window_layers on."""
    types = config.names("layer_types")
    if types is not None:
        return by_types(config, types, full, windowed)
    first = config.count("max_window_layers", default=0)
    return [windowed if index >= first else full for index in range(config.layers())]


def by_types(config: Fields, types: list[str], full: Attention, windowed: Attention) -> list[Attention]:
    """The mixer of every layer by the names in layer_types.

    Raises:
        LabError: as many names as layers are needed, each full_attention or sliding_attention.
    """
    check_types(config, types, ("full_attention", "sliding_attention"))
    return [windowed if name == "sliding_attention" else full for name in types]


def check_types(config: Fields, types: list[str], known: tuple[str, ...], *, key: str = "layer_types") -> None:
    """Refuse a list of layer types of the wrong length or with names not in `known`."""
    if len(types) != config.layers():
        raise LabError(
            "The config's {key} has {count} entries; it needs one for each of its {layers} layers.",
            key=key,
            count=len(types),
            layers=config.layers(),
        )
    unknown = next((name for name in types if name not in known), None)
    if unknown is not None:
        raise LabError(
            "The config's {key} names {unknown}; known here are {known}.",
            key=key,
            unknown=unknown,
            known=", ".join(known),
        )
