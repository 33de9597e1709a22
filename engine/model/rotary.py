"""Rotary positions: the angle of every pair of dimensions at every position, as tables.

Knows the three kinds dense decoders use: the plain one, positions scaled linearly, and Llama 3's, which
slows only the low frequencies. Others are refused by name rather than run wrongly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.errors import LabError
from engine.spec import Rotary

KINDS = ("default", "linear", "llama3")


def inverse_frequencies(rotary: Rotary) -> Tensor:
    """Radians a position turns each pair by: theta^(-2i/d) for i in 0 .. d/2 - 1, then scaled. [d/2], fp32.

    Raises:
        LabError: this kind of scaling is not one the engine computes.
    """
    exponents = torch.arange(0, rotary.dims, 2, dtype=torch.float32) / rotary.dims
    plain = 1.0 / (rotary.theta**exponents)
    if rotary.kind == "default":
        return plain
    if rotary.kind == "linear":
        return plain / rotary.factor
    if rotary.kind == "llama3":
        return _llama3(plain, rotary)
    raise LabError(
        "The config asks for rotary positions of kind {kind}; this engine computes {known}.",
        kind=rotary.kind,
        known=", ".join(KINDS),
    )


def _llama3(plain: Tensor, rotary: Rotary) -> Tensor:
    """Llama 3.1's scaling: full speed for pairs that turn often within the original context, 1/factor for rare ones.

    Between `low_freq_factor` and `high_freq_factor` turns the two are blended linearly (Llama 3.1's reference
    code, `apply_scaling`).
    """
    if rotary.original_max_position is None or rotary.high_freq_factor <= rotary.low_freq_factor:
        raise LabError(
            "The config's llama3 rotary scaling needs original_max_position_embeddings, "
            "and a high_freq_factor above its low_freq_factor."
        )
    turns = rotary.original_max_position * plain / (2 * math.pi)
    share = (turns - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor)
    share = share.clamp(0, 1)
    return share * plain + (1 - share) * plain / rotary.factor


class RotaryTable:
    """cos and signed sin of positions 0 .. positions-1, laid out for `ops.rotate_heads_`: [positions, 1, d] each.

    Angles are computed in fp32 whatever the model's dtype. The first half of `signed_sin` is negative.
    """

    def __init__(self, rotary: Rotary, positions: int, dtype: torch.dtype, device: torch.device) -> None:
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * inverse_frequencies(rotary)
        cos, sin = angles.cos(), angles.sin()
        self._cos = torch.cat((cos, cos), dim=-1)[:, None].to(device, dtype)
        self._signed_sin = torch.cat((-sin, sin), dim=-1)[:, None].to(device, dtype)

    def at(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """cos and signed sin of positions start .. end-1, [end-start, 1, d] each, as views."""
        return self._cos[start:end], self._signed_sin[start:end]
