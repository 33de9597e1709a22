"""A matrix of weights times a few rows of activations: the part of it that one thread does.

`like` is an empty array that stands for the weights' format by its dtype: float32 for fp32, uint16 for bf16, int8 for
int8 with a bf16 scale per row, uint8 for int4 with a bf16 scale per group. numba compiles a function for each.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

from engine.kernels.arithmetic import gate_run
from engine.kernels.atoms import CACHE_LINE, load_bf16, load_byte, load_float, store_float
from engine.kernels.tiles import LANES, STEP, pair_of_four, pair_of_one, pair_of_two, single
from engine.kernels.whole import rounded, whole_single, whole_sums_of_pair

UNIT = 16
"""Outputs are shared out in such runs, so that no two threads write to one cache line."""


@intrinsic
def row_bytes(typingctx: Any, like: Any, k: Any) -> Any:
    """Bytes of a row of `k` stored numbers."""
    bits = {"float32": 32, "uint16": 16, "int8": 8, "uint8": 4}[like.dtype.name]

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        constant = ir.IntType(64)
        return builder.lshr(builder.mul(arguments[1], constant(bits)), constant(3))

    return types.int64(like, types.int64), codegen


def _row_scale(like: Any, scales: Any, row: Any) -> Any:
    """What a row's sum is multiplied by: its scale in int8, 1 in formats whose weights are whole already."""
    raise NotImplementedError  # compiled code takes one of those below


@overload(_row_scale)
def _row_scale_of(like: Any, scales: Any, row: Any) -> Any:
    return _scale_of_int8 if like.dtype == types.int8 else _scale_of_others


def _scale_of_int8(like: Any, scales: Any, row: Any) -> Any:
    return load_bf16(scales + 2 * row)


def _scale_of_others(like: Any, scales: Any, row: Any) -> Any:
    return np.float32(1)


def unpack(like: Any, weights: Any, scales: Any, row: Any, k: Any, group: Any, index: Any) -> Any:
    """One stored number of a matrix as fp32, scale included."""
    raise NotImplementedError  # compiled code takes one of those below


@overload(unpack)
def _unpack_of(like: Any, weights: Any, scales: Any, row: Any, k: Any, group: Any, index: Any) -> Any:
    return {
        types.float32: _unpack_fp32,
        types.uint16: _unpack_bf16,
        types.int8: _unpack_int8,
        types.uint8: _unpack_int4,
    }[like.dtype]


def _unpack_fp32(like: Any, weights: Any, scales: Any, row: Any, k: Any, group: Any, index: Any) -> Any:
    return load_float(weights + 4 * (row * k + index))


def _unpack_bf16(like: Any, weights: Any, scales: Any, row: Any, k: Any, group: Any, index: Any) -> Any:
    return load_bf16(weights + 2 * (row * k + index))


def _unpack_int8(like: Any, weights: Any, scales: Any, row: Any, k: Any, group: Any, index: Any) -> Any:
    byte = load_byte(weights + row * k + index)
    return np.float32(byte - 256 if byte > 127 else byte) * load_bf16(scales + 2 * row)


def _unpack_int4(like: Any, weights: Any, scales: Any, row: Any, k: Any, group: Any, index: Any) -> Any:
    run, within = index // STEP, index % STEP
    byte = load_byte(weights + row * (k // 2) + run * LANES + within % LANES)
    nibble = byte & 15 if within < LANES else byte >> 4
    return np.float32(nibble - 8) * load_bf16(scales + 2 * (row * (k // group) + index // group))


@njit(error_model="numpy")
def share(count: int, thread: int, threads: int) -> tuple[int, int]:
    """The outputs from .. to that one of `threads` computes, of `count`."""
    units = count // UNIT
    last = count if thread == threads - 1 else units * (thread + 1) // threads * UNIT
    return units * thread // threads * UNIT, last


@njit(error_model="numpy")
def _sums_of_pair(
    like: Any,
    w: int,
    w_stride: int,
    s: int,
    s_stride: int,
    x: int,
    x_stride: int,
    whole: bool,
    k: int,
    group: int,
    left: int,
    to: int,
) -> int:
    """Two rows of weights with as many of the `left` rows of activations as one tile takes; how many it took."""
    if whole:
        took: int = whole_sums_of_pair(like, w, w_stride, x, x_stride, k, left, to)
        return took
    if left >= 4:
        pair_of_four(like, w, w_stride, s, s_stride, x, x_stride, k, group, to)
        return 4
    if left >= 2:
        pair_of_two(like, w, w_stride, s, s_stride, x, x_stride, k, group, to)
        return 2
    pair_of_one(like, w, w_stride, s, s_stride, x, x_stride, k, group, to)
    return 1


@njit(error_model="numpy")
def product(
    like: Any,
    w: int,
    scales: int,
    bias: int,
    k: int,
    group: int,
    first: int,
    last: int,
    x: int,
    x_stride: int,
    rows: int,
    out: int,
    out_stride: int,
    adds: bool,
    sums: int,
) -> None:
    """Outputs `first` .. `last` of x W^T (+ bias), for all `rows`, written to `out` or added to what is there.

    Addresses and, for `x_stride` and `out_stride`, bytes between rows; `sums` is `whole.room_bytes` of memory. Rows of
    weights lie right behind each other.
    """
    strided_product(
        like, w, row_bytes(like, k), scales, bias, k, group, first, last,
        x, x_stride, rows, out, out_stride, adds, sums,
    )  # fmt: skip


@njit(error_model="numpy")
def strided_product(
    like: Any,
    w: int,
    stride: int,
    scales: int,
    bias: int,
    k: int,
    group: int,
    first: int,
    last: int,
    x: int,
    x_stride: int,
    rows: int,
    out: int,
    out_stride: int,
    adds: bool,
    sums: int,
) -> None:
    """As `product`, with only the first `k` numbers of rows of weights that lie `stride` bytes apart."""
    scale_stride = 2 * (k // group)
    x, x_stride, whole = rounded(like, x, x_stride, rows, k, sums)
    output = first
    while output + 2 <= last:
        done = 0
        while done < rows:
            place, scale_place = w + output * stride, scales + output * scale_stride
            at = x + done * x_stride
            took = _sums_of_pair(
                like, place, stride, scale_place, scale_stride, at, x_stride, whole, k, group, rows - done, sums
            )
            for row in range(took):
                for one in range(2):
                    total = load_float(sums + 4 * (2 * row + one))
                    to = out + (done + row) * out_stride + 4 * (output + one)
                    _finish(like, total, scales, bias, output + one, to, adds)
            done += took
        output += 2
    if output < last:
        for row in range(rows):
            place, scale_place = w + output * stride, scales + output * scale_stride
            at = x + row * x_stride
            if whole:
                whole_single(like, place, stride, at, x_stride, k, sums)
            else:
                single(like, place, stride, scale_place, scale_stride, at, x_stride, k, group, sums)
            to = out + row * out_stride + 4 * output
            _finish(like, load_float(sums), scales, bias, output, to, adds)


@njit(inline="always")
def _finish(like: Any, total: Any, scales: int, bias: int, output: int, to: int, adds: bool) -> None:
    value = total * _row_scale(like, scales, output)
    if bias != 0:
        value += load_float(bias + 4 * output)
    if adds:
        value += load_float(to)
    store_float(to, value)


@njit(error_model="numpy")
def gated_product(
    like: Any,
    w: int,
    scales: int,
    bias: int,
    k: int,
    group: int,
    width: int,
    first: int,
    last: int,
    x: int,
    x_stride: int,
    rows: int,
    out: int,
    out_stride: int,
    sums: int,
) -> None:
    """silu(gate x) * up x for outputs `first` .. `last` of `width`; the matrix has the gates' rows, then the ups'.

    A gate and its up are one tile's two rows. SwiGLU waits until a run of UNIT outputs is there, for it then takes all
    of them at once: one by one it cost as much as a third row of activations.
    """
    stride, scale_stride = row_bytes(like, k), 2 * (k // group)
    x, x_stride, whole = rounded(like, x, x_stride, rows, k, sums)
    ups = sums + CACHE_LINE
    for output in range(first, last):
        done, within = 0, 4 * (output % UNIT)
        while done < rows:
            place, scale_place = w + output * stride, scales + output * scale_stride
            took = _sums_of_pair(
                like,
                place,
                width * stride,
                scale_place,
                width * scale_stride,
                x + done * x_stride,
                x_stride,
                whole,
                k,
                group,
                rows - done,
                sums,
            )
            for row in range(took):
                gate, up = load_float(sums + 8 * row), load_float(sums + 8 * row + 4)
                _finish(like, gate, scales, bias, output, out + (done + row) * out_stride + 4 * output, False)
                _finish(like, up, scales, bias, output + width, ups + (done + row) * CACHE_LINE + within, False)
            done += took
        if output % UNIT == UNIT - 1:
            for row in range(rows):
                gate_run(out + row * out_stride + 4 * output + 4 - CACHE_LINE, ups + row * CACHE_LINE)
