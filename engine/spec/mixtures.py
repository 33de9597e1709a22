"""Mixtures of experts over ordinary or latent attention: Qwen MoE, Mixtral, gpt-oss, DeepSeek, Kimi-K2."""

from __future__ import annotations

from engine.errors import LabError
from engine.spec.common import attention, build, mlp, rotary
from engine.spec.config import Fields
from engine.spec.dense import by_types, by_window_layers, check_types, window
from engine.spec.experts import Experts
from engine.spec.extras import deepseek_mtp
from engine.spec.latent import LatentAttention
from engine.spec.types import FeedForward, Layer, Spec

# How configs of other families, and those that transformers itself writes, name the number of routed experts.
ALIASES = ("num_local_experts", "num_experts", "n_routed_experts")


def qwen3_moe(config: Fields) -> Spec:
    """Qwen3-MoE: q/k norm, experts in every decoder_sparse_step-th layer but those in mlp_only_layers."""
    full = attention(config, qk_norm=True)
    windowed = attention(config, qk_norm=True, window=window(config))
    mixers = by_window_layers(config, full, windowed)
    return build(config, [Layer(m, part) for m, part in zip(mixers, sparse_by_step(config), strict=True)])


def qwen2_moe(config: Fields) -> Spec:
    """Qwen2-MoE: biases on q, k and v, experts by Qwen's rule with a gated shared one."""
    full = attention(config, qkv_bias=True)
    mixers = by_window_layers(config, full, attention(config, qkv_bias=True, window=window(config)))
    return build(config, [Layer(m, part) for m, part in zip(mixers, sparse_by_step(config), strict=True)])


def deepseek_v2(config: Fields) -> Spec:
    """DeepSeek-V2: as V3, with a router that has no correction bias; the Lite model projects its queries directly."""
    experts = shared_experts(config, "n_routed_experts", "n_shared_experts", router_bias=False)
    return build(config, leading_dense(config, Layer(latent(config), experts)))


def mixtral(config: Fields) -> Spec:
    """Mixtral: experts of the full feed-forward width in every layer."""
    experts = _experts(config, "num_local_experts", config.size("intermediate_size"))
    return build(config, [Layer(attention(config, window=window(config)), experts)] * config.layers())


def gpt_oss(config: Fields) -> Spec:
    """gpt-oss: windows in every other layer, sinks, biases everywhere, experts stored in MXFP4."""
    types = config.names("layer_types")
    if types is None:
        types = ["full_attention" if i % 2 else "sliding_attention" for i in range(config.layers())]
    bias = config.flag("attention_bias", default=True)
    full = attention(config, qkv_bias=bias, o_bias=bias, sinks=True)
    windowed = attention(config, qkv_bias=bias, o_bias=bias, sinks=True, window=config.size("sliding_window"))
    width = config.size("intermediate_size")
    experts = _experts(config, "num_local_experts", width, router_bias=True, bias=True)
    return build(config, [Layer(mixer, experts) for mixer in by_types(config, types, full, windowed)])


def deepseek_v3(config: Fields) -> Spec:
    """DeepSeek-V3 and Kimi-K2: latent attention, a few dense layers first, then routed and shared experts."""
    layer = Layer(latent(config), shared_experts(config, "n_routed_experts", "n_shared_experts"))
    layers = leading_dense(config, layer)
    spec = build(config, layers)
    depth = config.count("num_nextn_predict_layers")
    return build(config, layers, extras=deepseek_mtp(spec, layer, depth)) if depth else spec


def latent(config: Fields, *, output_gate: bool = False, nope: bool = False) -> LatentAttention:
    """Latent attention under DeepSeek's keys, which Kimi uses too."""
    nope = config.flag("mla_use_nope", default=nope)
    rope_dim = config.size("qk_rope_head_dim")
    return LatentAttention(
        heads=config.size("num_attention_heads"),
        rank=config.size("kv_lora_rank"),
        rope_dim=rope_dim,
        nope_dim=config.size("qk_nope_head_dim"),
        value_dim=config.size("v_head_dim"),
        q_rank=config.size("q_lora_rank") if config.has("q_lora_rank") else None,
        rotary=None if nope else rotary(config, rope_dim),
        output_gate=output_gate,
    )


def shared_experts(
    config: Fields,
    experts_key: str,
    shared_key: str,
    *,
    top_k_key: str = "num_experts_per_tok",
    router_bias: bool = True,
) -> Experts:
    """Routed experts beside shared ones of the same width, under one router with a correction bias per expert."""
    width = config.size("moe_intermediate_size")
    return _experts(
        config,
        experts_key,
        width,
        top_k_key=top_k_key,
        shared_width=config.count(shared_key, "n_shared_experts") * width,
        router_bias=router_bias,
        latent_width=config.size("routed_expert_hidden_size") if config.has("routed_expert_hidden_size") else None,
    )


def leading_dense(config: Fields, layer: Layer, *, default: int = 0) -> list[Layer]:
    """`layer` everywhere but in the first first_k_dense_replace layers, which have a dense feed-forward part."""
    count = config.layers()
    types = config.names("mlp_layer_types")
    if types is not None:
        check_types(config, types, ("dense", "sparse"), key="mlp_layer_types")
        return [layer if name == "sparse" else Layer(layer.mixer, mlp(config)) for name in types]
    dense = min(config.count("first_k_dense_replace", default=default), count)
    if config.size("moe_layer_freq", default=1) != 1:
        raise LabError(
            "The config's moe_layer_freq is not 1; only experts in every layer after the dense ones are known."
        )
    return [Layer(layer.mixer, mlp(config))] * dense + [layer] * (count - dense)


def sparse_by_step(config: Fields) -> list[FeedForward]:
    """Qwen's rule for which layers hold experts, and which a dense feed-forward part."""
    width = config.size("moe_intermediate_size")
    shared = config.count("shared_expert_intermediate_size")
    experts = _experts(config, "num_experts", width, shared_width=shared, shared_gate=bool(shared))
    step, dense_only = config.size("decoder_sparse_step", default=1), set(config.indices("mlp_only_layers"))
    layers = range(config.layers())
    return [mlp(config) if i in dense_only or (i + 1) % step else experts for i in layers]


def _experts(
    config: Fields,
    count_key: str,
    width: int,
    *,
    top_k_key: str = "num_experts_per_tok",
    shared_width: int = 0,
    shared_gate: bool = False,
    router_bias: bool = False,
    bias: bool = False,
    latent_width: int | None = None,
) -> Experts:
    count, top_k = config.size(count_key, *ALIASES), config.size(top_k_key, "num_experts_per_tok")
    if top_k > count:
        raise LabError(
            "The config routes each token to {top_k} experts but has only {count}.", top_k=top_k, count=count
        )
    return Experts(
        experts=count,
        top_k=top_k,
        width=width,
        shared_width=shared_width,
        shared_gate=shared_gate,
        router_bias=router_bias,
        bias=bias,
        latent=latent_width,
        latent_norm=config.flag("latent_moe_use_norm", default=False),
        activation=config.text("hidden_act", default="silu"),
    )
