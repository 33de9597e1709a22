"""Keys and values as the cache keeps them: in fp32, in bf16, or in int8 with a bf16 scale for each.

`kv` is an empty array that stands for the format by its dtype: float32, uint16 for bf16, int8. Numbers and scales lie
apart, each position's behind the one before, so that both are read as streams.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.extending import intrinsic, overload

from engine.kernels.atoms import floats, pointer
from engine.kernels.halves import narrow
from engine.kernels.whole import largest_amount

_ZERO, _MOST = np.float32(0), np.float32(127)


@intrinsic
def _rounded_up(typingctx: Any, value: Any) -> Any:
    """A non-negative fp32 number as the next bf16 that is not smaller."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        bits = builder.add(builder.bitcast(arguments[0], word), ir.Constant(word, 0xFFFF))
        return builder.bitcast(builder.and_(bits, ir.Constant(word, 0xFFFF0000)), ir.FloatType())

    return types.float32(types.float32), codegen


@intrinsic
def _store_bf16(typingctx: Any, address: Any, value: Any) -> Any:
    """Put an fp32 number that is a bf16 one at an address."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, half = ir.IntType(32), ir.IntType(16)
        upper = builder.lshr(builder.bitcast(arguments[1], word), ir.Constant(word, 16))
        builder.store(builder.trunc(upper, half), builder.inttoptr(arguments[0], half.as_pointer()))
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), codegen


def put(kv: Any, source: Any, numbers: Any, scale: Any, size: Any) -> None:
    """One key or value, `size` fp32 numbers at `source`, to its place: its numbers and, in int8, its scale."""
    raise NotImplementedError  # compiled code takes one of those below


@overload(put)
def _put_of(kv: Any, source: Any, numbers: Any, scale: Any, size: Any) -> Any:
    return {types.float32: _put_fp32, types.uint16: _put_bf16, types.int8: _put_int8}[kv.dtype]


def _put_fp32(kv: Any, source: Any, numbers: Any, scale: Any, size: Any) -> None:
    _copy(source, numbers, size)


def _put_bf16(kv: Any, source: Any, numbers: Any, scale: Any, size: Any) -> None:
    narrow(source, 0, numbers, size)


def _put_int8(kv: Any, source: Any, numbers: Any, scale: Any, size: Any) -> None:
    _to_int8(source, numbers, scale, size)


@njit(error_model="numpy")
def _copy(source: int, numbers: int, size: int) -> None:
    x, out = floats(source, size), floats(numbers, size)
    for i in range(size):
        out[i] = x[i]


@njit(error_model="numpy")
def _to_int8(source: int, numbers: int, scale: int, size: int) -> None:
    """As `engine.model.packed.to_int8`: the largest becomes 127, by a scale that is rounded up."""
    x, out = floats(source, size), carray(pointer(numbers), (size,), np.int8)
    step = _rounded_up(largest_amount(source, size) / _MOST)
    _store_bf16(scale, step)
    for i in range(size):
        out[i] = np.int8(np.rint(x[i] / step)) if step > _ZERO else np.int8(0)


def scale_by(kv: Any, numbers: Any, scales: Any, count: Any) -> None:
    """`count` fp32 numbers, each times its bf16 scale, in place: in int8. Other formats have no scales."""
    raise NotImplementedError  # compiled code takes one of those below


@overload(scale_by)
def _scale_by_of(kv: Any, numbers: Any, scales: Any, count: Any) -> Any:
    return _scale_int8 if kv.dtype == types.int8 else _scale_others


def _scale_int8(kv: Any, numbers: Any, scales: Any, count: Any) -> None:
    _multiply(numbers, scales, count)


def _scale_others(kv: Any, numbers: Any, scales: Any, count: Any) -> None:
    return None


@njit(fastmath=True, error_model="numpy")
def _multiply(numbers: int, scales: int, count: int) -> None:
    x, narrow = floats(numbers, count), carray(pointer(scales), (count,), np.uint16)
    for i in range(count):
        x[i] *= _widened(narrow[i])


@intrinsic
def _widened(typingctx: Any, stored: Any) -> Any:
    """A bf16 number's bits as fp32."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        wide = builder.shl(builder.zext(arguments[0], word), ir.Constant(word, 16))
        return builder.bitcast(wide, ir.FloatType())

    return types.float32(types.uint16), codegen
