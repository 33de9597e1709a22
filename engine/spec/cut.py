"""A config with only its first layers, so that a model too large to run whole can be run in part at its true widths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNTS = ("num_hidden_layers", "n_layer")
# One entry, or one letter, for each layer.
PER_LAYER = ("layer_types", "layers_block_type", "mlp_layer_types", "hybrid_override_pattern")
# Layer numbers, from 1.
NUMBERED = ("full_attn_layers", "kda_layers")


def first_layers(config: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The config of the first `count` layers of a model, wherever its family keeps their number and their kinds."""
    kept = dict(config)
    for key, value in config.items():
        if key in COUNTS:
            kept[key] = count
        elif key in PER_LAYER and isinstance(value, list | str):
            kept[key] = value[:count]
        elif key in NUMBERED and isinstance(value, list):
            kept[key] = [number for number in value if number <= count]
        elif key in ("text_config", "linear_attn_config") and isinstance(value, Mapping):
            kept[key] = first_layers(value, count)
    return kept
