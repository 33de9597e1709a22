"""Tiny random models of every family transformers has, and how to compare the engine with them."""

from __future__ import annotations

import dataclasses
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
        swiglu_limit=1.5,
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
    "mistral-v0.1": lambda: _config("mistral", sliding_window=16),
}


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


def engine_of(model: Any, **changes: Any) -> HybridDecoder:
    """The engine's model with the same weights, dimensions from the same config."""
    spec = specs.read(model.config.to_dict())
    return HybridDecoder.from_tensors(dataclasses.replace(spec, **changes), model.state_dict())


@torch.no_grad()
def reference_logits(model: Any, ids: Tensor, prompt: int) -> list[Tensor]:
    """Last-position logits of the prompt and of every later token, through transformers' cache."""
    cache = transformers.DynamicCache(config=model.config)
    found = [model(ids[:, :prompt], cache=cache, use_cache=True).logits[:, -1]]
    for position in range(prompt, ids.shape[1]):
        found.append(model(ids[:, position : position + 1], cache=cache, use_cache=True).logits[:, -1])
    return found


def engine_logits(model: HybridDecoder, ids: Tensor, prompt: int) -> list[Tensor]:
    """The same from the engine."""
    return [model.prefill(ids[:, :prompt])] + [model.decode(column) for column in ids[:, prompt:].T]


def worst(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference over the largest logit, over all steps."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))


def tokens(batch: int, length: int) -> Tensor:
    """The same random ids every time."""
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(length))
