"""The innermost product: a few rows of weights times a few rows of activations, in each weight format.

A decode step reads every weight once and does two FLOPs with it, so a kernel has to keep memory busy and nothing else.
Two things decide that. Weights are prefetched `AHEAD` bytes before they are used: left to itself, a core of a virtual
Xeon read 5 GB/s of int8 and 6 of bf16 here, and 9 to 10 with it, as much as of fp32. And several sums run side by
side, so that no addition waits for the one before it.

Compilers do not turn loops over small integers into what the hardware does best, so the vectors are spelled out;
LLVM maps 16 lanes to whatever width the processor has.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.atoms import CACHE_LINE, emit_prefetch

LANES = 16
STEP = 2 * LANES
"""Numbers a tile takes at a time: the inner size of every matrix has to be a multiple of it."""
AHEAD = 4096
"""Bytes between what is read and what is prefetched."""

_F32, _I64, _I32, _I16, _I8 = ir.FloatType(), ir.IntType(64), ir.IntType(32), ir.IntType(16), ir.IntType(8)
_ROW_BITS = {"float32": 32, "uint16": 16, "int8": 8, "uint8": 4}
"""How weights are held, by the dtype of the array that stands for the format: fp32, bf16, int8, int4."""


def _tile(rows: int, inputs: int) -> Any:
    """The product of `rows` rows of weights with `inputs` rows of activations.

    Arguments of the intrinsic, all addresses and strides in bytes:
        like: an array whose dtype says the format (see `_ROW_BITS`); its contents are not read.
        w, w_stride: the first row of weights, and how far apart rows lie.
        s, s_stride: int4 only: the first row's bf16 scales, one a group, and how far apart rows lie.
        x, x_stride: the first row of fp32 activations, and how far apart rows lie.
        k, group: numbers in a row, and in a group (int4; STEP times a power of two).
        out: where the fp32 sums go, [inputs, rows]. A scale per row is the caller's business.
    """

    @intrinsic
    def tile(
        typingctx: Any,
        like: Any,
        w: Any,
        w_stride: Any,
        s: Any,
        s_stride: Any,
        x: Any,
        x_stride: Any,
        k: Any,
        group: Any,
        out: Any,
    ) -> Any:
        kind = like.dtype.name

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            Tile(builder, kind, rows, inputs, *arguments[1:]).emit()
            return context.get_dummy_value()

        return types.void(like, *[types.int64] * 9), codegen

    return tile


class Tile:
    """Writes one tile's instructions."""

    def __init__(self, builder: Any, kind: str, rows: int, inputs: int, *arguments: Any) -> None:
        self.b, self.kind, self.rows, self.inputs = builder, kind, rows, inputs
        self.w, self.w_stride, self.s, self.s_stride, self.x, self.x_stride, self.k, self.group, self.out = arguments
        zero = _splatted(_F32, 0.0)
        self.group_shift = self._log2_of_group() if kind == "uint8" else None
        self.sums = [[[slot(builder, zero) for _ in range(2)] for _ in range(inputs)] for _ in range(rows)]

    def emit(self) -> None:
        """The loop over a row, then the sums across lanes."""
        with cgutils.for_range_slice(self.b, constant(0), self.k, constant(STEP), intp=_I64) as (at, _):
            inputs = [self._inputs(at, index) for index in range(self.inputs)]
            for row in range(self.rows):
                row_bytes = self.b.lshr(self.b.mul(at, constant(_ROW_BITS[self.kind])), constant(3))
                start = self._address(self.w, self.w_stride, row, row_bytes)
                self._prefetch(start)
                halves = self._decode(start)
                if self.kind == "uint8":
                    scale = self._group_scale(at, row)
                    halves = [self.b.fmul(half, scale) for half in halves]
                for index in range(self.inputs):
                    for half in range(2):
                        self._add_product(self.sums[row][index][half], halves[half], inputs[index][half])
        self._store_sums()

    def _store_sums(self) -> None:
        """The sums across halves and lanes, to `out`."""
        order = [self.sums[row][index] for index in range(self.inputs) for row in range(self.rows)]
        totals = [self._total(slots) for slots in order]
        for first in range(0, len(totals), 4):
            part = self._across(totals[first : first + 4])
            place = self.b.add(self.out, constant(4 * first))
            self.b.store(part, self.b.inttoptr(place, part.type.as_pointer())).align = 4

    def _address(self, base: Any, stride: Any, index: int, offset: Any) -> Any:
        return self.b.add(self.b.add(base, self.b.mul(stride, constant(index))), offset)

    def _load(self, address: Any, kind: Any, count: int, align: int) -> Any:
        value = self.b.load(self.b.inttoptr(address, ir.VectorType(kind, count).as_pointer()))
        value.align = align
        return value

    def _inputs(self, at: Any, index: int) -> list[Any]:
        address = self._address(self.x, self.x_stride, index, self.b.shl(at, constant(2)))
        return [self._load(self.b.add(address, constant(4 * LANES * half)), _F32, LANES, 4) for half in range(2)]

    def _decode(self, start: Any) -> list[Any]:
        """STEP weights as two vectors of fp32."""
        if self.kind == "float32":
            return [self._load(self.b.add(start, constant(4 * LANES * half)), _F32, LANES, 4) for half in range(2)]
        if self.kind == "uint16":
            stored = [self._load(self.b.add(start, constant(2 * LANES * half)), _I16, LANES, 2) for half in range(2)]
            return [self._from_bf16(half, LANES) for half in stored]
        lanes = ir.VectorType(_F32, LANES)
        if self.kind == "int8":
            stored = [self._load(self.b.add(start, constant(LANES * half)), _I8, LANES, 1) for half in range(2)]
            return [self.b.sitofp(half, lanes) for half in stored]
        both = self._load(start, _I8, LANES, 1)  # low halves are the first LANES weights, high halves the next
        nibbles = [self.b.and_(both, _splatted(_I8, 15)), self.b.lshr(both, _splatted(_I8, 4))]
        return [self.b.sitofp(self.b.sub(half, _splatted(_I8, 8)), lanes) for half in nibbles]

    def _from_bf16(self, stored: Any, lanes: int) -> Any:
        """bf16 is the upper half of fp32."""
        wide = ir.VectorType(_I32, lanes)
        shifted = self.b.shl(self.b.zext(stored, wide), ir.Constant(wide, [16] * lanes))
        return self.b.bitcast(shifted, ir.VectorType(_F32, lanes))

    def _group_scale(self, at: Any, row: int) -> Any:
        """The scale of the group that begins at or before number `at`, in every lane."""
        index = self.b.shl(self.b.lshr(at, self.group_shift), constant(1))
        scale = self._from_bf16(self._load(self._address(self.s, self.s_stride, row, index), _I16, 1, 2), 1)
        return self.b.shuffle_vector(scale, scale, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))

    def _log2_of_group(self) -> Any:
        """Groups are powers of two: shifting by this finds one without a division in the loop."""
        return self.b.cttz(self.group, ir.Constant(ir.IntType(1), 1))

    def _prefetch(self, start: Any) -> None:
        for line in range(0, max(1, STEP * _ROW_BITS[self.kind] // 8), CACHE_LINE):
            emit_prefetch(self.b, self.b.add(start, constant(AHEAD + line)))

    def _add_product(self, slot: Any, weights: Any, inputs: Any) -> None:
        product = self.b.fmul(weights, inputs, flags=("contract",))
        self.b.store(self.b.fadd(self.b.load(slot), product, flags=("contract",)), slot)

    def _total(self, slots: list[Any]) -> Any:
        first, *others = [self.b.load(place) for place in slots]
        for other in others:
            first = self.b.fadd(first, other)
        return first

    def _across(self, vectors: list[Any]) -> Any:
        """The sums over the lanes of one, two or four vectors, as one vector of that many.

        Two vectors' halves are added as one vector, so that four take five additions and not sixteen. They are halves
        of every four lanes at first: shuffles within 128 bits are the quickest everywhere.
        """
        count, lanes = len(vectors), range(LANES)
        for neighbours in (1, 2)[: count.bit_length() - 1]:  # lanes of one vector that stay beside each other
            low = [i // 4 * 4 + i % 4 // 2 + LANES * (i % 2) for i in lanes]
            if neighbours == 2:
                low = [i // 4 * 4 + i % 2 + LANES * (i % 4 // 2) for i in lanes]
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self._both_halves(one, other, low, 2) for one, other in pairs]
        total, width = vectors[0], LANES
        while width > count:
            width //= 2
            total = self._both_halves(total, total, list(range(width)), width)
        return total

    def _both_halves(self, one: Any, other: Any, lanes: list[int], apart: int) -> Any:
        """Some lanes of two vectors, plus those that lie `apart` lanes further."""
        kind = ir.VectorType(_I32, len(lanes))
        low, high = (ir.Constant(kind, [lane + more for lane in lanes]) for more in (0, apart))
        return self.b.fadd(self.b.shuffle_vector(one, other, low), self.b.shuffle_vector(one, other, high))


def constant(value: int) -> Any:
    return ir.Constant(_I64, value)


def _splatted(kind: Any, value: Any) -> Any:
    return ir.Constant(ir.VectorType(kind, LANES), [value] * LANES)


def slot(builder: Any, value: Any) -> Any:
    """A variable of this loop: LLVM keeps it in a register. Set here, for the tile may stand in a loop itself."""
    slot = cgutils.alloca_once(builder, value.type)
    builder.store(value, slot)
    return slot


pair_of_four = _tile(2, 4)
pair_of_two = _tile(2, 2)
pair_of_one = _tile(2, 1)
single = _tile(1, 1)
