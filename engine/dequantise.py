"""Numbers out of compressed weights: FP8 in blocks, and MXFP4. Pure arithmetic on torch tensors.

Both are exact in fp32 (MXFP4 in bf16 too): what a format means is decided by its scales, and nothing is rounded here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Sign, two bits of exponent, one of mantissa: the OCP Microscaling specification 1.0, table 5 (E2M1).
FP4_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
_E8M0_BIAS = 127
_PIECE = 1 << 22
"""Bytes of packed numbers unpacked at a time: what is in between must not be larger than what comes out."""


def from_fp8(weight: Tensor, scale: Tensor, block: Sequence[int]) -> Tensor:
    """FP8 numbers times the scale of their block (DeepSeek-V3's report, section 3.3, figure 7).

    Args:
        weight: [..., m, n] in float8.
        scale: [..., ceil(m / block[0]), ceil(n / block[1])]; of one number for a tensor with one scale.
        block: rows and columns that share a scale; the last ones of either may be fewer.

    Returns:
        [..., m, n] in fp32.
    """
    numbers, scale = weight.float(), scale.float()
    if scale.numel() == 1:
        return numbers.mul_(scale.reshape(()))
    for dim in (-2, -1):
        scale = scale.repeat_interleave(block[dim], dim=dim).narrow(dim, 0, numbers.shape[dim])
    return numbers.mul_(scale)


def from_mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    """Two 4-bit numbers a byte, the low half first, times 2^(scale - 127) for each 32 of them (OCP MX, section 5.3).

    Args:
        blocks: [..., rows, groups, 16] uint8. scales: [..., rows, groups] uint8.

    Returns:
        [..., rows, 32 groups] in bf16, which holds every such number exactly.
    """
    values = torch.tensor(FP4_VALUES, dtype=torch.bfloat16)
    packed, exponents = blocks.reshape(-1, blocks.shape[-1]), scales.reshape(-1, 1)
    out = torch.empty(len(packed), 2 * packed.shape[1], dtype=torch.bfloat16)
    piece = max(1, _PIECE // packed.shape[1])
    for first in range(0, len(packed), piece):
        part, into = packed[first : first + piece], out[first : first + piece]
        into[:, 0::2] = values[(part & 15).int()]
        into[:, 1::2] = values[(part >> 4).int()]
        torch.ldexp(into, exponents[first : first + piece].int() - _E8M0_BIAS, out=into)
    return out.view(*blocks.shape[:-2], -1)
