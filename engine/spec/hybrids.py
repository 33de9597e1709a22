"""Recurrent layers with a few attention layers among them: Qwen3-Next, Qwen3.5, Kimi-Linear, Mamba2 hybrids."""

from __future__ import annotations

from engine.errors import LabError
from engine.spec.common import attention, build, mlp
from engine.spec.config import Fields
from engine.spec.dense import check_types
from engine.spec.experts import Experts
from engine.spec.extras import qwen_mtp, qwen_vision
from engine.spec.mixtures import latent, leading_dense, shared_experts, sparse_by_step
from engine.spec.parts import Attention, Mlp
from engine.spec.recurrent import GatedDeltaNet, KimiDelta, Mamba2
from engine.spec.types import FeedForward, Layer, Norm, Spec

ATTENTION, LINEAR = "full_attention", "linear_attention"
# What older configs call the two kinds.
ALIASES = {"attention": ATTENTION, "mamba": LINEAR, "mamba2": LINEAR}
NEMOTRON_LETTERS = {"M": LINEAR, "*": ATTENTION, "-": "mlp", "E": "moe"}


def qwen3_next(config: Fields) -> Spec:
    """Qwen3-Next: three gated delta nets to one gated attention, experts in every layer."""
    parts = sparse_by_step(config)
    layers = _qwen_layers(config, parts)
    text = build(config, layers)
    depth = config.count("mtp_num_hidden_layers")
    extra = qwen_mtp(text, Layer(_gated_attention(config), parts[-1]), depth, own_table=False)
    return build(config, layers, extras=[extra]) if depth else text


def qwen3_5(top: Fields) -> Spec:
    """Qwen3.5 to 3.8, dense or with experts; beside the text a vision tower and an MTP layer no step reads."""
    config = top.part("text_config") or top
    parts: list[FeedForward]
    parts = sparse_by_step(config) if config.has("num_experts") else [mlp(config)] * config.layers()
    layers = _qwen_layers(config, parts)
    text = build(config, layers, outer=top)
    extras = []
    vision = top.part("vision_config")
    if vision is not None:
        extras.append(qwen_vision(vision, out=text.hidden_size))
    depth = config.count("mtp_num_hidden_layers")
    if depth:
        layer = Layer(_gated_attention(config), parts[-1])
        extras.append(
            qwen_mtp(text, layer, depth, own_table=config.flag("mtp_use_dedicated_embeddings", default=False))
        )
    return build(config, layers, outer=top, extras=extras)


def kimi_linear(top: Fields) -> Spec:
    """Kimi-Linear and Kimi-K3: delta attention with latent attention in the layers listed, counted from 1."""
    config = top.part("text_config") or top
    linear = config.part("linear_attn_config") or Fields({})
    delta = KimiDelta(
        heads=linear.size("num_heads", default=config.size("linear_num_heads", default=32)),
        dim=linear.size("head_dim", default=config.size("linear_head_dim", default=128)),
        kernel=linear.size("short_conv_kernel_size", default=config.size("linear_conv_kernel_dim", default=4)),
        full_rank_gate=linear.flag("use_full_rank_gate", default=False),
    )
    full = latent(config, output_gate=config.flag("mla_use_output_gate", default=False), nope=True)
    experts = shared_experts(config, "num_experts", "num_shared_experts", top_k_key="num_experts_per_token")
    parts = [layer.feed_forward for layer in leading_dense(config, Layer(full, experts), default=1)]
    attends = _kimi_attention_layers(config, linear)
    layers = [Layer(full if i in attends else delta, part) for i, part in enumerate(parts)]
    return build(config, layers, outer=top)


def nemotron_h(config: Fields) -> Spec:
    """Nemotron-H: every layer is one thing alone - Mamba2, attention, a relu-squared feed-forward part, or experts."""
    kinds = _nemotron_kinds(config)
    made: dict[str, Layer] = {}
    if LINEAR in kinds:
        made[LINEAR] = Layer(_nemotron_mamba(config), None)
    if ATTENTION in kinds:
        size = config.size("head_dim", "attention_head_dim", default=128)
        made[ATTENTION] = Layer(attention(config.with_defaults({"head_dim": size}), positions=False), None)
    if "mlp" in kinds:
        bias = config.flag("mlp_bias", default=False)
        made["mlp"] = Layer(None, Mlp(config.size("intermediate_size"), gated=False, bias=bias, activation="relu2"))
    if "moe" in kinds:
        made["moe"] = Layer(None, _nemotron_experts(config))
    norm = Norm(eps=config.number("layer_norm_epsilon", default=1e-5))
    return build(config, [made[kind] for kind in kinds], norm=norm)


def granite_hybrid(config: Fields) -> Spec:
    """Granite 4 hybrids: Mamba2 or attention, then a shared feed-forward part, with routed experts or without."""
    shared = config.size("shared_intermediate_size")
    part: FeedForward = Mlp(shared)
    if config.count("num_local_experts"):
        routed = {"moe_intermediate_size": config.size("intermediate_size"), "n_shared_experts": 0}
        experts = shared_experts(
            Fields({**config.values, **routed}), "num_local_experts", "n_shared_experts", router_bias=False
        )
        part = experts.with_shared(shared)
    rope = config.text("position_embedding_type", default="") == "rope"
    full = attention(config, positions=rope)
    types = config.names("layer_types") or config.names("layers_block_type") or [LINEAR] * config.layers()
    return build(config, _by_kind(config, types, Layer(full, part), Layer(_mamba(config), part)))


def bamba(config: Fields) -> Spec:
    """Bamba: Mamba2 with attention in attn_layer_indices, a gated feed-forward part in every layer."""
    attends = set(config.indices("attn_layer_indices"))
    part = mlp(config)
    layers = [Layer(attention(config) if i in attends else _mamba(config), part) for i in range(config.layers())]
    return build(config, layers)


def _qwen_layers(config: Fields, parts: list[FeedForward]) -> list[Layer]:
    delta = GatedDeltaNet(
        key_heads=config.size("linear_num_key_heads"),
        value_heads=config.size("linear_num_value_heads"),
        key_dim=config.size("linear_key_head_dim"),
        value_dim=config.size("linear_value_head_dim"),
        kernel=config.size("linear_conv_kernel_dim", default=4),
    )
    full = _gated_attention(config)
    types = config.names("layer_types")
    if types is None:
        interval = config.size("full_attention_interval", default=4)
        types = [LINEAR if (i + 1) % interval else ATTENTION for i in range(config.layers())]
    check_types(config, types, (ATTENTION, LINEAR))
    return [Layer(full if name == ATTENTION else delta, part) for name, part in zip(types, parts, strict=True)]


def _gated_attention(config: Fields) -> Attention:
    bias = config.flag("attention_bias", default=False)
    gated = config.flag("attn_output_gate", default=True)
    return attention(config, qkv_bias=bias, o_bias=bias, qk_norm=True, output_gate=gated)


def _kimi_attention_layers(config: Fields, linear: Fields) -> set[int]:
    """Indices, from 0, of the latent-attention layers."""
    if linear.has("full_attn_layers"):
        listed = linear.indices("full_attn_layers")
        wrong = next((index for index in listed if not 1 <= index <= config.layers()), None)
        if wrong is not None:
            raise LabError(
                "The config's full_attn_layers names layer {index}; its layers are numbered from 1 to {layers}.",
                index=wrong,
                layers=config.layers(),
            )
        return {index - 1 for index in listed}
    types = config.names("layer_types")
    if types is not None:
        check_types(config, types, (ATTENTION, LINEAR))
        return {index for index, name in enumerate(types) if name == ATTENTION}
    return {i for i in range(config.layers()) if i and i % 4 == 0}


def _by_kind(config: Fields, types: list[str], full: Layer, recurrent: Layer) -> list[Layer]:
    names = [ALIASES.get(name, name) for name in types]
    check_types(config, names, (ATTENTION, LINEAR))
    return [full if name == ATTENTION else recurrent for name in names]


def _nemotron_kinds(config: Fields) -> list[str]:
    """What each layer is, from a pattern of letters or from a list of names."""
    names = config.names("layers_block_type") or config.names("layer_types")
    if names:
        kinds = [ALIASES.get(name, name) for name in names]
        unknown = next((kind for kind in kinds if kind not in NEMOTRON_LETTERS.values()), None)
        if unknown is None:
            return kinds
        raise LabError(
            "The config's layers_block_type names {unknown}; known here are {known}.",
            unknown=unknown,
            known=", ".join(NEMOTRON_LETTERS.values()),
        )
    pattern = config.text("hybrid_override_pattern", default="")
    if not pattern or set(pattern) - NEMOTRON_LETTERS.keys():
        raise LabError(
            "The config's hybrid_override_pattern has to be a row of M (Mamba2), * (attention), - (feed-forward) and "
            "E (experts), one for each layer; it is {pattern}.",
            pattern=pattern[:60] or "missing",
        )
    if config.has("num_hidden_layers") and config.layers() != len(pattern):
        raise LabError(
            "The config's hybrid_override_pattern has {count} layers, num_hidden_layers says {layers}.",
            count=len(pattern),
            layers=config.layers(),
        )
    return [NEMOTRON_LETTERS[letter] for letter in pattern]


def _nemotron_experts(config: Fields) -> Experts:
    """Ungated experts under a router with a correction bias, perhaps at a narrower width, and a shared one."""
    return Experts(
        experts=config.size("n_routed_experts", "num_local_experts"),
        top_k=config.size("num_experts_per_tok"),
        width=config.size("moe_intermediate_size"),
        shared_width=config.count("moe_shared_expert_intermediate_size"),
        router_bias=True,
        gated=False,
        latent=config.size("moe_latent_size") if config.has("moe_latent_size") else None,
        activation="relu2",
    )


def _nemotron_mamba(config: Fields) -> Mamba2:
    return Mamba2(
        heads=config.size("mamba_num_heads"),
        head_dim=config.size("mamba_head_dim"),
        groups=config.size("n_groups", default=8),
        state=config.size("ssm_state_size"),
        kernel=config.size("conv_kernel", default=4),
        conv_bias=config.flag("use_conv_bias", default=True),
        proj_bias=config.flag("use_bias", default=False),
    )


def _mamba(config: Fields) -> Mamba2:
    """Granite's and Bamba's names of the same numbers."""
    heads = config.size("mamba_n_heads")
    inner = config.size("mamba_expand", default=2) * config.size("hidden_size")
    automatic = not config.has("mamba_d_head") or config.is_text("mamba_d_head")
    return Mamba2(
        heads=heads,
        head_dim=inner // heads if automatic else config.size("mamba_d_head"),
        groups=config.size("mamba_n_groups", default=1),
        state=config.size("mamba_d_state", default=256),
        kernel=config.size("mamba_d_conv", default=4),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        proj_bias=config.flag("mamba_proj_bias", default=False),
    )
