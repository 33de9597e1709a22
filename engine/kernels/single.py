"""Matrices of weights times a few rows each, as a call of its own: for models whose steps are not compiled whole.

Activations and outputs are both fp32 or, with bf16 weights, both bf16; sums are fp32 either way, and each output is
rounded once. One call multiplies by one matrix, or by several of one shape, each with rows of its own: experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import carray, njit
from torch import Tensor

from engine.kernels.atoms import CACHE_LINE, fetch_add, floats, load_float, meet, pointer, store_float
from engine.kernels.calls import CALL, call
from engine.kernels.entry import compiled
from engine.kernels.halves import narrow, widen
from engine.kernels.products import row_bytes, share, strided_product, unpack
from engine.kernels.tiles import STEP
from engine.kernels.whole import room_bytes

AT_ONCE = 512
"""Outputs that are computed in fp32 before they are rounded to bf16."""

_TENSORS = ["p_x", "x_stride", "p_out", "p_parts", "parts"]
_SHAPE = ["k", "group", "n", "width"]  # width: numbers in a row of activations
_MEMORY = ["half", "in_stride", "part_at", "sums_at", "room_bytes"]  # half: activations and outputs are bf16
PRODUCT = np.dtype([(name, np.int64) for name in (*CALL, *_TENSORS, *_SHAPE, *_MEMORY)])
PART = np.dtype([(name, np.int64) for name in ("p_weights", "p_scales", "p_bias", "rows")])
"""One matrix, and how many of the rows, behind those of the matrices before it, are multiplied by it."""


@njit(error_model="numpy")
def run_products(like: Any, address: int) -> None:
    """One thread's share of the outputs. Returns when all threads are done."""
    job = carray(pointer(address), (1,), PRODUCT)[0]
    parts = carray(pointer(job.p_parts), (job.parts,), PART)
    thread = fetch_add(job.p_counter + 8, 1) % job.threads
    room = job.p_room + thread * job.room_bytes
    first, last = share(job.n, thread, job.threads)
    done = 0
    for index in range(job.parts):
        part = parts[index]
        given, out = job.p_x + done * job.x_stride, job.p_out + done * job.n * (2 if job.half != 0 else 4)
        x, x_stride = _inputs(job, given, part.rows, room)
        if job.half != 0:
            _half_outputs(like, job, part, first, last, x, x_stride, out, room)
        else:
            sums = room + job.sums_at
            _outputs(like, job, part, first, last, x, x_stride, out, 4 * job.n, part.p_bias, sums)
        done += part.rows
    meet(job.p_counter, job.threads)


@njit(error_model="numpy")
def _inputs(job: Any, given: int, rows: int, room: int) -> tuple[int, int]:
    """Rows of activations as the tiles take them, fp32 and as long as the stored rows, and the bytes between them."""
    if job.half == 0 and job.width == job.k:
        return given, job.x_stride
    for row in range(rows):
        source, target = given + row * job.x_stride, room + row * job.in_stride
        out = floats(target, job.k)
        if job.half != 0:
            widen(source, target, job.width)
        else:
            x = floats(source, job.width)
            for i in range(job.width):
                out[i] = x[i]
        for i in range(job.width, job.k):
            out[i] = np.float32(0)
    return room, job.in_stride


@njit(error_model="numpy")
def _half_outputs(
    like: Any, job: Any, part: Any, first: int, last: int, x: int, x_stride: int, out: int, room: int
) -> None:
    """Outputs `first` .. `last` in fp32, some at a time, rounded to bf16."""
    wide, sums = room + job.part_at, room + job.sums_at
    for start in range(first, last, AT_ONCE):
        end = min(start + AT_ONCE, last)
        _outputs(like, job, part, start, end, x, x_stride, wide - 4 * start, 4 * AT_ONCE, 0, sums)
        bias = part.p_bias + 2 * start if part.p_bias != 0 else 0
        for row in range(part.rows):
            narrow(wide + row * 4 * AT_ONCE, bias, out + 2 * (row * job.n + start), end - start)


@njit(error_model="numpy")
def _outputs(
    like: Any,
    job: Any,
    part: Any,
    first: int,
    last: int,
    x: int,
    x_stride: int,
    out: int,
    out_stride: int,
    bias: int,
    sums: int,
) -> None:
    """Outputs `first` .. `last` in fp32; numbers that do not fill a tile at a row's end are added one by one."""
    whole = job.k // STEP * STEP
    strided_product(
        like, part.p_weights, row_bytes(like, job.k), part.p_scales, bias, whole, job.group, first, last,
        x, x_stride, part.rows, out, out_stride, False, sums,
    )  # fmt: skip
    if whole == job.k:
        return
    for output in range(first, last):
        for row in range(part.rows):
            total = np.float32(0)
            for i in range(whole, job.k):
                weight = unpack(like, part.p_weights, part.p_scales, output, job.k, job.group, i)
                total += weight * load_float(x + row * x_stride + 4 * i)
            place = out + row * out_stride + 4 * output
            store_float(place, load_float(place) + total)


def _fp32(address: int) -> None:
    run_products(carray(pointer(address), (0,), np.float32), address)


def _bf16(address: int) -> None:
    run_products(carray(pointer(address), (0,), np.uint16), address)


def _int8(address: int) -> None:
    run_products(carray(pointer(address), (0,), np.int8), address)


def _int4(address: int) -> None:
    run_products(carray(pointer(address), (0,), np.uint8), address)


_KINDS: dict[str, Callable[[int], None]] = {"fp32": _fp32, "bf16": _bf16, "int8": _int8, "int4": _int4}


@cache
def product_address(kind: str) -> int:
    """The address of the function for weights held as "fp32", "bf16", "int8" or "int4": compiled, if it was not."""
    return compiled(_KINDS[kind], kind)


class SingleProduct:
    """x W^T + b, with W [n, k] held as "fp32", "bf16", "int8" or "int4".

    stored, scales: as `engine.model.packed` keeps them; scales is None for fp32 and bf16. bias: in the activations'
    dtype. k: numbers in a stored row, the zeros that fill the last group of an int4 row included. group: weights that
    share a scale. width: numbers in a row of activations, None for k.
    """

    def __init__(
        self,
        kind: str,
        stored: Tensor,
        scales: Tensor | None,
        bias: Tensor | None = None,
        *,
        k: int,
        n: int,
        group: int,
        width: int | None = None,
    ) -> None:
        self._held = (stored, scales, bias)
        self.addresses = tuple(0 if tensor is None else tensor.data_ptr() for tensor in self._held)
        self.kind, self.k, self.n, self.group, self.width = kind, k, n, group, width or k

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, width] -> [rows, n], in x's dtype: fp32, or bf16 where the weights are."""
        return products([self], [len(x)], x)


def products(matrices: Sequence[SingleProduct], counts: Sequence[int], x: Tensor) -> Tensor:
    """Matrices of one kind and shape, each times so many rows of x [rows, width]: [rows, n], in x's dtype."""
    first = matrices[0]
    if x.stride(1) != 1:
        x = x.contiguous()
    out = torch.empty(len(x), first.n, dtype=x.dtype)
    parts = np.array([(*one.addresses, count) for one, count in zip(matrices, counts, strict=True)], np.int64)
    tensors = (x.data_ptr(), x.stride(0) * x.itemsize, out.data_ptr(), parts.ctypes.data, len(parts))
    memory = _memory(first.kind, first.k, first.width, max(counts), x.dtype == torch.bfloat16)
    call(product_address(first.kind), (*tensors, first.k, first.group, first.n, first.width, *memory), memory[-1])
    return out


@cache
def _memory(kind: str, k: int, width: int, rows: int, half: bool) -> tuple[int, ...]:
    """The job's fields of a thread's memory: rows of activations, outputs yet to be rounded, and what tiles need."""
    stride = -(-4 * k // CACHE_LINE) * CACHE_LINE
    inputs = rows * stride if half or width < k else 0
    wide = rows * 4 * AT_ONCE if half else 0
    return half, stride, inputs, inputs + wide, inputs + wide + room_bytes(rows, k, int8=kind == "int8")
