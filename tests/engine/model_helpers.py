"""Tiny random models, as transformers makes them and as the engine makes them from the same weights."""

from __future__ import annotations

from typing import Any

import torch
import transformers

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
