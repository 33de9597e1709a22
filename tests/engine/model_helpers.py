"""Tiny random models, as transformers makes them and as the engine makes them from the same weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

from engine import spec as specs
from engine.model import Model

SIZES: dict[str, Any] = {
    "vocab_size": 257,
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-3,  # large enough to show when it is left out
    "tie_word_embeddings": False,
}


def reference(kind: str, **changes: Any) -> Any:
    """transformers' model of this kind, every parameter random: default norms of 1 and biases of 0 hide bugs."""
    torch.manual_seed(20)
    config = transformers.AutoConfig.for_model(kind, **{**SIZES, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * (0.3 if parameter.ndim == 1 else 0.15))
    return model


def engine_of(model: Any, **settings: Any) -> Model:
    """The engine's model with the same weights, its dimensions read from the same config."""
    return Model.from_tensors(specs.read(model.config.to_dict()), model.state_dict(), **settings)


@torch.no_grad()
def reference_logits(model: Any, ids: Tensor, prompt: int) -> list[Tensor]:
    """Last-position logits of the prompt and of every later token, through transformers' cache."""
    cache = transformers.DynamicCache(config=model.config)
    found = [model(ids[:, :prompt], cache=cache, use_cache=True).logits[:, -1]]
    for position in range(prompt, ids.shape[1]):
        found.append(model(ids[:, position : position + 1], cache=cache, use_cache=True).logits[:, -1])
    return found


def engine_logits(model: Model, ids: Tensor, prompt: int) -> list[Tensor]:
    """The same from the engine."""
    return [model.prefill(ids[:, :prompt])] + [model.decode(column) for column in ids[:, prompt:].T]


def worst(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference over the largest logit, over all steps."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, theirs, strict=True))
