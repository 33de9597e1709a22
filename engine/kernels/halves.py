"""Rows of bf16 numbers to fp32 ones and back: what is computed in fp32 comes and goes in bf16."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from engine.kernels.atoms import floats, load_bf16, pointer


@njit(error_model="numpy")
def widen(source: int, target: int, count: int) -> None:
    """`count` bf16 numbers as fp32 ones: bf16 is fp32's upper half."""
    stored, out = _bits(source, count, np.uint16), _bits(target, count, np.uint32)
    for i in range(count):
        out[i] = np.uint32(stored[i]) << np.uint32(16)


@njit(error_model="numpy")
def narrow(source: int, bias: int, target: int, count: int) -> None:
    """`count` fp32 numbers, each with its bf16 bias added where there is one, to the nearest bf16 (ties to even)."""
    if bias != 0:
        sums = floats(source, count)
        for i in range(count):
            sums[i] += load_bf16(bias + 2 * i)
    bits, out = _bits(source, count, np.uint32), _bits(target, count, np.uint16)
    for i in range(count):
        even = (bits[i] >> np.uint32(16)) & np.uint32(1)
        out[i] = np.uint16((bits[i] + np.uint32(0x7FFF) + even) >> np.uint32(16))


@njit(inline="always")
def _bits(address: int, count: int, kind: Any) -> Any:
    return carray(pointer(address), (count,), kind)
