"""Tiny models of transformers, one of each family, and what torch counts when they run: the ledger's reference.

Everything here comes from code we did not write: transformers' modules, its cache tensors, and torch's FlopCounterMode
over the plain path (SDPBackend.MATH, experts one by one), which counts attention as the full square it executes.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
import transformers as tf
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

SMALL: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2}
LATENT = {"kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 10, "num_key_value_heads": 6}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
    "head_dim": 16,
}
MAMBA = {"mamba_n_heads": 12, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_expand": 2}

CONFIGS: dict[str, tuple[type, dict[str, Any]]] = {
    "llama": (tf.LlamaConfig, {"tie_word_embeddings": True}),
    "llama-3.1": (
        tf.LlamaConfig,
        {
            "attention_bias": True,
            "mlp_bias": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
    "mistral": (tf.MistralConfig, {"sliding_window": None}),
    "mistral-window": (tf.MistralConfig, {"sliding_window": 16}),
    "qwen2": (tf.Qwen2Config, {}),
    "qwen3": (tf.Qwen3Config, {"head_dim": 16, "tie_word_embeddings": True}),
    "phi3": (tf.Phi3Config, {}),
    "gemma3": (tf.Gemma3TextConfig, {"head_dim": 16, "sliding_window": 16, "num_hidden_layers": 7}),
    "gemma2": (tf.Gemma2Config, {"head_dim": 16, "sliding_window": 16, "tie_word_embeddings": True}),
    "smollm3": (tf.SmolLM3Config, {}),
    "granite-dense": (tf.GraniteConfig, {"attention_bias": True}),
    "gpt2": (tf.GPT2Config, {"n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 128}),
    "qwen3_moe": (tf.Qwen3MoeConfig, {**EXPERTS, "head_dim": 16, "mlp_only_layers": [1]}),
    "qwen2_moe": (tf.Qwen2MoeConfig, {**EXPERTS, "shared_expert_intermediate_size": 16}),
    "deepseek_v2": (
        tf.DeepseekV2Config,
        {
            **LATENT,
            "q_lora_rank": None,
            "moe_intermediate_size": 24,
            "n_routed_experts": 8,
            "n_shared_experts": 2,
            "num_experts_per_tok": 2,
            "first_k_dense_replace": 1,
        },
    ),
    "mixtral": (tf.MixtralConfig, {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gpt_oss": (
        tf.GptOssConfig,
        {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 16},
    ),
    "deepseek_v3": (
        tf.DeepseekV3Config,
        {
            **LATENT,
            "q_lora_rank": 20,
            "moe_intermediate_size": 24,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
            "num_nextn_predict_layers": 0,
        },
    ),
    "qwen3_next": (tf.Qwen3NextConfig, {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 16}),
    "qwen3_5": (tf.Qwen3_5TextConfig, {**DELTA, "num_hidden_layers": 8}),
    "qwen3_5_moe": (tf.Qwen3_5MoeTextConfig, {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 16}),
    "kimi_linear": (
        tf.KimiLinearConfig,
        {
            **LATENT,
            "moe_intermediate_size": 24,
            "num_experts": 8,
            "num_experts_per_token": 2,
            "num_hidden_layers": 5,
            "linear_attn_config": {
                "full_attn_layers": [3, 5],
                "kda_layers": [1, 2, 4],
                "head_dim": 8,
                "num_heads": 6,
                "short_conv_kernel_size": 4,
            },
        },
    ),
    "nemotron_h": (
        tf.NemotronHConfig,
        {
            "hybrid_override_pattern": "M-M*M-",
            "num_hidden_layers": 6,
            "head_dim": 16,
            "mamba_num_heads": 12,
            "mamba_head_dim": 8,
            "n_groups": 2,
            "ssm_state_size": 16,
        },
    ),
    "nemotron_h-experts": (
        tf.NemotronHConfig,
        {
            "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"],
            "head_dim": 16,
            "mamba_num_heads": 12,
            "mamba_head_dim": 8,
            "n_groups": 2,
            "ssm_state_size": 16,
            "moe_intermediate_size": 24,
            "moe_shared_expert_intermediate_size": 40,
            "moe_latent_size": 20,
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
        },
    ),
    "granite": (
        tf.GraniteMoeHybridConfig,
        {
            **MAMBA,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "shared_intermediate_size": 40,
            "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
        },
    ),
    "bamba": (tf.BambaConfig, {**MAMBA, "attn_layer_indices": [1, 3]}),
}
FAMILIES = tuple(CONFIGS)


@functools.cache
def model(family: str) -> Any:
    """A tiny random model of the family, on the plain path."""
    kind, changes = CONFIGS[family]
    values = {**SMALL, **changes}
    if kind is tf.GPT2Config:
        values = {**changes, "vocab_size": 97, "bos_token_id": 1, "eos_token_id": 2}
    config = kind(**values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # These two have only an eager path, which executes the same products.
        attention = "eager" if family in ("gpt_oss", "gemma2") else "sdpa"
        path = {"attn_implementation": attention, "experts_implementation": "eager"}
        made = tf.AutoModelForCausalLM.from_config(config, **path)
    return made.eval()


def config_json(family: str) -> dict[str, Any]:
    """The config.json transformers writes for it; Kimi's nested part as its checkpoints have it."""
    written: dict[str, Any] = model(family).config.to_dict()
    given = CONFIGS[family][1]
    for key in ("linear_attn_config", "hybrid_override_pattern"):
        if key in given:
            written[key] = given[key]
    return written


@functools.cache
def run(family: str, tokens: int, *, batch: int = 1, steps: int = 1) -> tuple[list[dict[str, int]], Any]:
    """FLOPs by torch op of a prefill and of `steps` decode steps, and the cache afterwards."""
    torch.manual_seed(0)
    made = model(family)
    ids = torch.randint(3, 97, (batch, tokens + steps))
    cache = tf.DynamicCache(config=made.config)
    counted = []
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        for start, end in [(0, tokens), *((t, t + 1) for t in range(tokens, tokens + steps))]:
            with FlopCounterMode(display=False) as counter:
                made(ids[:, start:end], cache=cache, use_cache=True)
            counted.append({str(op): int(flops) for op, flops in counter.get_flop_counts()["Global"].items()})
    return counted, cache


def stored(family: str) -> dict[str, torch.Tensor]:
    """Parameters by name, and the routers' correction biases: buffers here, tensors of the file in a checkpoint."""
    made = model(family)
    biases = {name: b for name, b in made.named_buffers() if "correction_bias" in name}
    return {**dict(made.named_parameters()), **biases}


def conv_flops(counted: dict[str, int]) -> int:
    """Convolutions alone."""
    return sum(flops for op, flops in counted.items() if "conv" in op)


def matrix_flops(counted: dict[str, int]) -> int:
    """Everything but convolutions."""
    return sum(flops for op, flops in counted.items() if "conv" not in op)


def cache_bytes(cache: Any) -> dict[str, int]:
    """Bytes of the cache's real tensors: "kv", "state" and "conv"."""
    found = {"kv": 0, "state": 0, "conv": 0}
    for layer in cache.layers:
        for kind, names in (("kv", ("keys", "values")), ("state", ("recurrent_states",)), ("conv", ("conv_states",))):
            for name in names:
                found[kind] += _bytes(getattr(layer, name, None))
    return found


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return sum(_bytes(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_bytes(item) for item in value)
    return 0
