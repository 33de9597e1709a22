"""Tiny random models of every family transformers has, and how to compare the engine with them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

from engine import spec as specs
from engine.model.hybrid import HybridDecoder

VOCABULARY = 257
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-3,  # large enough to show when it is left out
    "tie_word_embeddings": False,
}
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 8,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    },
}
EXPERTS: dict[str, Any] = {"moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 3}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 12,
    "v_head_dim": 10,
    "head_dim": 8,
    "num_key_value_heads": 6,
    "first_k_dense_replace": 1,
    "intermediate_size": 80,
}
GROUPED: dict[str, Any] = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "moe_intermediate_size": 24,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 2.5,
}
DEEPSEEK_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    "mscale": 0.7,
    "mscale_all_dim": 1.3,
    "original_max_position_embeddings": 64,
}
GRANITE: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "mamba_n_heads": 6,
    "mamba_d_head": 16,
    "mamba_d_state": 10,
    "mamba_n_groups": 2,
    "mamba_expand": 2,
    "mamba_chunk_size": 32,
    "shared_intermediate_size": 40,
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "logits_scaling": 5.0,
    "attention_multiplier": 0.3,
}


def _config(kind: str, **changes: Any) -> transformers.PretrainedConfig:
    return transformers.AutoConfig.for_model(kind, **{**SIZES, **changes})


CONFIGS: dict[str, Callable[[], transformers.PretrainedConfig]] = {
    "qwen3.5": lambda: _config("qwen3_5_text", **DELTA),
    "qwen3.5-moe": lambda: _config("qwen3_5_moe_text", **DELTA, **EXPERTS, shared_expert_intermediate_size=40),
    "qwen3-next": lambda: _config("qwen3_next", **DELTA, **EXPERTS, shared_expert_intermediate_size=40),
    "qwen3-moe": lambda: _config("qwen3_moe", **EXPERTS, norm_topk_prob=True, mlp_only_layers=[1]),
    "qwen3-moe-plain": lambda: _config("qwen3_moe", **EXPERTS, norm_topk_prob=False, decoder_sparse_step=2),
    "mixtral": lambda: _config("mixtral", num_local_experts=6, num_experts_per_tok=2, sliding_window=None),
    "gpt-oss": lambda: _config(
        "gpt_oss",
        num_local_experts=6,
        num_experts_per_tok=2,
        sliding_window=9,
        swiglu_limit=0.3,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10_000.0,
            "factor": 4.0,
            "beta_fast": 8.0,
            "beta_slow": 1.0,
            "truncate": False,
            "original_max_position_embeddings": 64,
        },
    ),
    "gemma3": lambda: _config(
        "gemma3_text",
        sliding_window=9,
        sliding_window_pattern=3,
        query_pre_attn_scalar=24,
        tie_word_embeddings=True,
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        },
    ),
    "deepseek-v3": lambda: _config("deepseek_v3", **LATENT, **GROUPED, q_lora_rank=20, rope_parameters=DEEPSEEK_YARN),
    "kimi-k2": lambda: _config("deepseek_v3", **LATENT, **GROUPED, q_lora_rank=None),
    "kimi-linear": lambda: _config(
        "kimi_linear",
        **LATENT,
        q_lora_rank=None,
        pad_token_id=0,
        moe_intermediate_size=24,
        num_experts=8,
        num_experts_per_token=3,
        num_shared_experts=1,
        routed_scaling_factor=1.7,
        linear_attn_config={
            "full_attn_layers": [2, 4],
            "kda_layers": [1, 3],
            "head_dim": 16,
            "num_heads": 3,
            "short_conv_kernel_size": 4,
        },
    ),
    "nemotron-h": lambda: _config(
        "nemotron_h",
        hybrid_override_pattern="M-M*-",
        mamba_num_heads=6,
        mamba_head_dim=8,
        ssm_state_size=10,
        n_groups=2,
        chunk_size=32,
        layer_norm_epsilon=1e-3,
    ),
    "granite-hybrid": lambda: _config("granitemoehybrid", **GRANITE, num_local_experts=0),
    "granite-hybrid-moe": lambda: _config(
        "granitemoehybrid",
        **GRANITE,
        num_local_experts=6,
        num_experts_per_tok=2,
        position_embedding_type="rope",
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    ),
    "gpt2": lambda: transformers.AutoConfig.for_model(
        "gpt2", vocab_size=VOCABULARY, n_embd=48, n_layer=3, n_head=6, n_positions=256, layer_norm_epsilon=1e-3
    ),
    "phi3": lambda: _config(
        "phi3",
        pad_token_id=0,
        sliding_window=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
    ),
    "mistral-v0.1": lambda: _config("mistral", sliding_window=16),
}


@functools.cache
def reference(kind: str) -> Any:
    """transformers' model of this kind, every parameter and buffer of weights random: defaults of 0 and 1 hide bugs."""
    torch.manual_seed(20)
    config = CONFIGS[kind]()
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.15))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.3)
    return model


def config_of(model: Any) -> dict[str, Any]:
    """Its config.json; Nemotron-H's files name the layers by a pattern that transformers keeps under another key."""
    found: dict[str, Any] = model.config.to_dict()
    pattern = getattr(model.config, "hybrid_override_pattern", None)
    return found if pattern is None else {**found, "hybrid_override_pattern": pattern}


def engine_of(model: Any, **changes: Any) -> HybridDecoder:
    """The engine's model with the same weights, dimensions from the same config."""
    spec = specs.read(config_of(model))
    return HybridDecoder.from_tensors(dataclasses.replace(spec, **changes), model.state_dict())


def tokens(batch: int, length: int) -> Tensor:
    """The same random ids every time."""
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(length))
