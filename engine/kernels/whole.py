"""int8 weights times a few rows of activations, in whole numbers.

Spelled out as fp32, a weight costs a widening and a conversion before its first product, and each product takes 16
lanes. As whole numbers, 32 weights are widened by one instruction and take one more for each row of activations: with
VNNI that is vpdpwssd, 32 products added in pairs to 16 sums. Four rows then take 5 instructions where fp32 takes 12.

The activations are rounded to 16 bits, a scale for every BLOCK of a row. That errs by 2^-16 of the block's largest at
most, against 2^-8 by which int8 weights are off themselves, and no sum of a block's products outgrows 32 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from engine.kernels.atoms import CACHE_LINE, floats, pointer, store_float
from engine.kernels.tiles import LANES, STEP, Tile, constant, slot

BLOCK = 512
"""Activations that share a scale; 2 x 127 x 32767 a step and lane would fill 32 bits with sixteen times as many."""
MOST_ROWS = 8
"""Rows beyond which fp32 is used: there arithmetic is the limit, and it is fp32's peak that the roofline states."""
_LARGEST = np.float32(32767)
_TINY = np.float32(1e-30)  # a block of less counts as zeros: its inverse would not be finite
_ZERO = np.float32(0)

_F32, _I32, _I16, _I8 = ir.FloatType(), ir.IntType(32), ir.IntType(16), ir.IntType(8)


def _widest() -> int:
    """Numbers of 16 bits that one multiply-add takes on the processor that numba compiles for; 0 if it has none."""
    features = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
    return 32 if "+avx512bw" in features else 16 if "+avx2" in features else 0


WIDEST = _widest()


def _row_bytes(k: int) -> int:
    """Bytes between rows of `k` rounded activations: the numbers, their scales, and what fills the last cache line."""
    return -(-(2 * k + 4 * -(-k // BLOCK)) // CACHE_LINE) * CACHE_LINE


_row_bytes_compiled = njit(_row_bytes)


def room_bytes(rows: int, k: int, *, int8: bool) -> int:
    """Memory a thread needs for products of up to `rows` rows: a tile's sums, a line a row, and the rounded rows."""
    whole = min(rows, MOST_ROWS) * _row_bytes(k) if int8 else 0
    return (1 + rows) * CACHE_LINE + whole


@intrinsic
def largest_amount(typingctx: Any, address: Any, count: Any) -> Any:
    """The largest of `count` fp32 numbers by amount. Without the sign, fp32 numbers are in the order of their bits.

    Spelled out, for a loop over a maximum is left to one lane: it took longer than a tenth of the whole step.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, count = arguments
        kind = ir.VectorType(_I32, LANES)
        found = slot(builder, ir.Constant(kind, [0] * LANES))
        with cgutils.for_range_slice(builder, constant(0), count, constant(LANES), intp=ir.IntType(64)) as (at, _):
            place = builder.add(start, builder.shl(at, constant(2)))
            bits = builder.load(builder.inttoptr(place, kind.as_pointer()))
            bits.align = 4
            bits = builder.and_(bits, ir.Constant(kind, [0x7FFFFFFF] * LANES))
            before = builder.load(found)
            builder.store(builder.select(builder.icmp_unsigned(">", bits, before), bits, before), found)
        shape = ir.FunctionType(_I32, [kind])
        reduce = cgutils.get_or_insert_function(builder.module, shape, f"llvm.vector.reduce.umax.v{LANES}i32")
        return builder.bitcast(builder.call(reduce, [builder.load(found)]), _F32)

    return types.float32(types.int64, types.int64), codegen


@njit(fastmath=True, error_model="numpy")
def _round_row(source: int, target: int, k: int) -> None:
    """`k` fp32 numbers as 16-bit ones, then their blocks' scales."""
    scale = target + 2 * k
    for start in range(0, k, BLOCK):
        count = min(BLOCK, k - start)
        x = floats(source + 4 * start, count)
        out = carray(pointer(target + 2 * start), (count,), np.int16)
        largest = largest_amount(source + 4 * start, count)
        inverse = _LARGEST / largest if largest > _TINY else _ZERO
        for i in range(count):
            out[i] = np.int16(np.rint(x[i] * inverse))
        store_float(scale, largest / _LARGEST)
        scale += 4


@intrinsic
def _has_whole(typingctx: Any, like: Any) -> Any:
    """Whether a format is multiplied in whole numbers: a constant."""
    found = _is_whole(like)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(ir.IntType(1), int(found))

    return types.boolean(like), codegen


def _is_whole(like: Any) -> bool:
    return like.dtype.name == "int8" and WIDEST > 0


@njit(error_model="numpy")
def rounded(like: Any, x: int, x_stride: int, rows: int, k: int, room: int) -> tuple[int, int, bool]:
    """Rows of activations as a product is to take them: their address, the bytes between them, whether they are whole.

    Whole ones are written to `room`, behind the sums of a tile and a cache line a row (see `products.gated_product`).
    """
    if rows > MOST_ROWS or not _has_whole(like):
        return x, x_stride, False
    to, stride = room + (1 + rows) * CACHE_LINE, _row_bytes_compiled(k)
    for row in range(rows):
        _round_row(x + row * x_stride, to + row * stride, k)
    return to, stride, True


def _tile(rows: int, inputs: int) -> Any:
    """As `tiles._tile`, for int8 weights and activations that `rounded` has rounded. All are addresses and strides."""

    @intrinsic
    def tile(typingctx: Any, like: Any, w: Any, w_stride: Any, x: Any, x_stride: Any, k: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, w, w_stride, x, x_stride, k, out = arguments
            none = constant(0)
            if _is_whole(like):  # in other formats no product comes here
                _WholeTile(builder, "int8", rows, inputs, w, w_stride, none, none, x, x_stride, k, none, out).emit()
            return context.get_dummy_value()

        return types.void(like, *[types.int64] * 6), codegen

    return tile


class _WholeTile(Tile):
    """Writes one tile's instructions: sums of 32 bits within a block, of fp32 over the blocks.

    A multiply-add of two instructions is written; LLVM makes one of them where the processor has it (VNNI).
    """

    def emit(self) -> None:
        b, zero = self.b, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
        whole = [[slot(b, zero) for _ in range(self.inputs)] for _ in range(self.rows)]
        self.sums = [[halves[:1] for halves in row] for row in self.sums]  # one vector of whole numbers has 16 sums
        scales = b.shl(self.k, constant(1))
        with cgutils.for_range_slice(b, constant(0), self.k, constant(BLOCK), intp=ir.IntType(64)) as (start, _):
            rest = b.sub(self.k, start)
            count = b.select(b.icmp_signed("<", rest, constant(BLOCK)), rest, constant(BLOCK))
            end = b.add(start, count)
            for row in range(self.rows):
                for index in range(self.inputs):
                    b.store(zero, whole[row][index])
            with cgutils.for_range_slice(b, start, end, constant(STEP), intp=ir.IntType(64)) as (at, _):
                self._step(at, whole)
            block = b.add(scales, b.lshr(start, constant(BLOCK.bit_length() - 3)))  # four bytes a BLOCK
            for index in range(self.inputs):
                scale = self._splat(self._address(self.x, self.x_stride, index, block))
                for row in range(self.rows):
                    total = b.sitofp(b.load(whole[row][index]), ir.VectorType(_F32, LANES))
                    self._add_product(self.sums[row][index][0], total, scale)
        self._store_sums()

    def _step(self, at: Any, whole: list[list[Any]]) -> None:
        """STEP numbers of each row of weights times those of each row of activations."""
        b, wide = self.b, ir.VectorType(_I16, STEP)
        offset = b.shl(at, constant(1))
        inputs = [
            self._load(self._address(self.x, self.x_stride, index, offset), _I16, STEP, 2)
            for index in range(self.inputs)
        ]
        for row in range(self.rows):
            start = self._address(self.w, self.w_stride, row, at)
            self._prefetch(start)
            weights = b.sext(self._load(start, _I8, STEP, 1), wide)
            for index in range(self.inputs):
                place = whole[row][index]
                b.store(b.add(b.load(place), self._products_in_pairs(weights, inputs[index])), place)

    def _products_in_pairs(self, one: Any, other: Any) -> Any:
        """32 products, the sum of each two neighbours: 16 numbers of 32 bits."""
        b = self.b
        name = {32: "llvm.x86.avx512.pmaddw.d.512", 16: "llvm.x86.avx2.pmadd.wd"}[WIDEST]
        part, sums = ir.VectorType(_I16, WIDEST), ir.VectorType(_I32, WIDEST // 2)
        function = cgutils.get_or_insert_function(b.module, ir.FunctionType(sums, [part, part]), name)
        if WIDEST == STEP:
            return b.call(function, [one, other])
        halves = [ir.Constant(ir.VectorType(_I32, WIDEST), list(range(first, first + WIDEST))) for first in (0, WIDEST)]
        low, high = (b.call(function, [b.shuffle_vector(v, v, half) for v in (one, other)]) for half in halves)
        return b.shuffle_vector(low, high, ir.Constant(ir.VectorType(_I32, LANES), list(range(LANES))))

    def _splat(self, address: Any) -> Any:
        """The fp32 number at an address in every lane."""
        one = self._load(address, _F32, 1, 4)
        return self.b.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


_pair_of_four = _tile(2, 4)
_pair_of_two = _tile(2, 2)
_pair_of_one = _tile(2, 1)
whole_single = _tile(1, 1)


@njit(error_model="numpy")
def whole_sums_of_pair(like: Any, w: int, w_stride: int, x: int, x_stride: int, k: int, left: int, to: int) -> int:
    """Two rows of weights with as many of the `left` rows of activations as one tile takes; how many it took."""
    if left >= 4:
        _pair_of_four(like, w, w_stride, x, x_stride, k, to)
        return 4
    if left >= 2:
        _pair_of_two(like, w, w_stride, x, x_stride, k, to)
        return 2
    _pair_of_one(like, w, w_stride, x, x_stride, k, to)
    return 1
