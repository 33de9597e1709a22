"""Rotary positions: the angle of every pair of dimensions at every position, as tables.

Knows the plain kind, positions scaled linearly, Llama 3's, which slows only the low frequencies, and YaRN. Others
are refused by name rather than run wrongly.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from engine.errors import LabError
from engine.spec import Rotary

KINDS = ("default", "linear", "llama3", "yarn")


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
    if rotary.kind == "yarn":
        return _yarn(plain, rotary)
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


def _yarn(plain: Tensor, rotary: Rotary) -> Tensor:
    """YaRN (Peng et al., 2023, section 3.2): pairs that turn often keep their speed, rare ones go 1/factor as fast.

    Between the pairs that turn `beta_fast` and `beta_slow` times within the original context the two are blended
    linearly; unless told not to, the ends are moved out to whole pairs.
    """
    original = rotary.original_max_position
    if original is None:
        raise LabError("The config's yarn rotary scaling needs original_max_position_embeddings.")

    def pair(turns: float) -> float:
        # The pair whose wavelength fits `turns` times into the original context, as a fraction.
        return len(plain) * math.log(original / (turns * 2 * math.pi)) / math.log(rotary.theta)

    low, high = pair(rotary.beta_fast), pair(rotary.beta_slow)
    if rotary.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary.dims - 1)
    slowed = ((torch.arange(len(plain)) - low) / max(high - low, 1e-3)).clamp(0, 1)
    return (1 - slowed) * plain + slowed * plain / rotary.factor


class RotaryTable:
    """cos and signed sin of positions 0 .. positions-1, laid out for `ops.rotate_heads_`: [positions, 1, d] each.

    Angles are computed in fp32 whatever the model's dtype. The first half of `signed_sin` is negative.
    """

    def __init__(self, rotary: Rotary, positions: int, dtype: torch.dtype, device: torch.device) -> None:
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * inverse_frequencies(rotary)
        cos, sin = angles.cos() * rotary.attention_factor, angles.sin() * rotary.attention_factor
        self._cos = torch.cat((cos, cos), dim=-1)[:, None].to(device, dtype)
        self._signed_sin = torch.cat((-sin, sin), dim=-1)[:, None].to(device, dtype)

    @property
    def tables(self) -> tuple[Tensor, Tensor]:
        """cos and signed sin of all positions, [positions, 1, d] each."""
        return self._cos, self._signed_sin

    def at(self, start: int, end: int) -> tuple[Tensor, Tensor]:
        """cos and signed sin of positions start .. end-1, [end-start, 1, d] each, as views."""
        return self._cos[start:end], self._signed_sin[start:end]
