"""What a step computes between the products: norms, rotary positions, SwiGLU. In fp32, on one thread each."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from engine.kernels.atoms import CACHE_LINE, floats, two_to_the

_LOG2_E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_C0, _C1, _C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_C3, _C4, _C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_ONE, _HALF, _ZERO = np.float32(1), np.float32(0.5), np.float32(0)
_LEAST, _MOST = np.float32(-87), np.float32(88)


@njit(inline="always")
def exp(x: Any) -> Any:
    """e^x in fp32, to 2e-7 of it: Cephes' polynomial. Unlike the library's it can run in all lanes of a vector."""
    x = min(max(x, _LEAST), _MOST)
    whole = np.floor(x * _LOG2_E + _HALF)
    rest = x - whole * _LN2_HIGH - whole * _LN2_LOW
    series = ((((_C0 * rest + _C1) * rest + _C2) * rest + _C3) * rest + _C4) * rest + _C5
    return (series * rest * rest + rest + _ONE) * two_to_the(np.int32(whole))


@njit(inline="always")
def silu(x: Any) -> Any:
    """x / (1 + e^-x)."""
    return x / (_ONE + exp(-x))


@njit(fastmath=True, error_model="numpy")
def gate_run(gates: int, ups: int) -> None:
    """SwiGLU of a cache line of numbers: silu(gate) * up, over the gates."""
    gate, up = floats(gates, CACHE_LINE // 4), floats(ups, CACHE_LINE // 4)
    for i in range(CACHE_LINE // 4):
        gate[i] = silu(gate[i]) * up[i]


@njit(fastmath=True, error_model="numpy")
def norm(source: int, weight: int, target: int, width: int, eps: Any) -> None:
    """RMS norm of one row of `width` numbers, all by their addresses; `source` may be `target`."""
    x, scale, out = floats(source, width), floats(weight, width), floats(target, width)
    total = _ZERO
    for i in range(width):
        total += x[i] * x[i]
    inverse = _ONE / np.float32(math.sqrt(total / np.float32(width) + eps))
    for i in range(width):
        out[i] = x[i] * inverse * scale[i]


@njit(fastmath=True, error_model="numpy")
def rotate(source: int, target: int, cos: int, signed_sin: int, size: int, factor: Any) -> None:
    """One head turned by its position's angles and multiplied by `factor`; the layout of `ops.rotate_heads_`."""
    x, out = floats(source, size), floats(target, size)
    turn, sign = floats(cos, size), floats(signed_sin, size)
    half = size // 2
    for i in range(half):
        low, high = x[i], x[i + half]
        out[i] = (low * turn[i] + high * sign[i]) * factor
        out[i + half] = (high * turn[i + half] + low * sign[i + half]) * factor


@njit(fastmath=True, error_model="numpy")
def scale_row(target: int, size: int, factor: Any) -> None:
    """`size` numbers times `factor`, in place."""
    out = floats(target, size)
    for i in range(size):
        out[i] *= factor


@njit(fastmath=True, error_model="numpy")
def add_scaled(target: int, source: int, size: int, factor: Any) -> None:
    """target += factor x source, `size` numbers."""
    out, x = floats(target, size), floats(source, size)
    for i in range(size):
        out[i] += factor * x[i]
