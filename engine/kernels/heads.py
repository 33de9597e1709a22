"""The two products of attention, of a few queries with the keys and the values of a run of positions.

A head is short, 64 or 128 numbers: by the tiles of the matrices, two keys at a time, summing up across lanes cost more
than the products. Here four keys are taken together with up to three queries, so that one look at a key serves all of
them and the sums of four keys share their additions; and values are added to sums that stay in registers for a whole
run of positions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from engine.kernels.tiles import LANES, STEP, Tile, constant, slot

KEYS = 4
"""Keys a tile takes at a time. It reads so many whatever is left: what follows a layer's keys is cache too."""
HEADS = 3
"""Queries a tile takes at most: with four keys they fill twelve registers of the sixteen that every processor has."""

_F32, _I64, _I32 = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_F32, LANES)
_ROW_BITS = {"float32": 32, "uint16": 16, "int8": 8}


def _scores(heads: int) -> Any:
    """KEYS keys times `heads` queries.

    Arguments of the intrinsic, all but the first addresses and strides in bytes:
        kv: an array whose dtype says what keys are held in; its contents are not read.
        keys, stride: the first key, and how far apart keys lie.
        x, x_stride: the first query, fp32, and how far apart they lie.
        size: numbers in a head, a multiple of STEP.
        out, out_stride: where the fp32 products of the first query go, KEYS side by side, and how far apart queries'
            lie.
    """

    @intrinsic
    def tile(
        typingctx: Any, kv: Any, keys: Any, stride: Any, x: Any, x_stride: Any, size: Any, out: Any, out_stride: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, keys, stride, x, x_stride, size, out, out_stride = arguments
            none = constant(0)
            made = _Scores(builder, kv.dtype.name, KEYS, heads, keys, stride, none, none, x, x_stride, size, none, out)
            made.emit_to(out_stride)
            return context.get_dummy_value()

        return types.void(kv, *[types.int64] * 7), codegen

    return tile


def _mixed(heads: int, vectors: int) -> Any:
    """`heads` weighted sums over values, of `vectors` x LANES of their numbers.

    Arguments of the intrinsic, all but the first and `count` addresses and strides in bytes:
        kv: as for keys.
        values, stride: the first value's first number that counts, and how far apart values lie.
        count: how many values.
        weights, weights_stride: the first head's fp32 weights, one a value, and how far apart heads' lie.
        factors: what each head's sums so far are multiplied by, side by side.
        out, out_stride: the first head's sums so far, which are replaced, and how far apart heads' lie.
    """

    @intrinsic
    def tile(
        typingctx: Any,
        kv: Any,
        values: Any,
        stride: Any,
        count: Any,
        weights: Any,
        weights_stride: Any,
        factors: Any,
        out: Any,
        out_stride: Any,
    ) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, values, stride, count, weights, weights_stride, factors, out, out_stride = arguments
            none = constant(0)
            made = _Mixed(
                builder, kv.dtype.name, heads, vectors, values, stride, factors, none, weights, weights_stride, count,
                none, out,
            )  # fmt: skip
            made.emit_to(out_stride)
            return context.get_dummy_value()

        return types.void(kv, *[types.int64] * 8), codegen

    return tile


class _Scores(Tile):
    """Writes the instructions of `_scores`: a vector of sums for each key and query."""

    def emit_to(self, out_stride: Any) -> None:
        b = self.b
        with cgutils.for_range_slice(b, constant(0), self.k, constant(STEP), intp=_I64) as (at, _):
            inputs = [self._inputs(at, index) for index in range(self.inputs)]
            offset = b.lshr(b.mul(at, constant(_ROW_BITS[self.kind])), constant(3))
            for row in range(self.rows):
                start = self._address(self.w, self.w_stride, row, offset)
                self._prefetch(start)
                for half, stored in enumerate(self._decode(start)):
                    for index in range(self.inputs):
                        self._add_product(self.sums[row][index][0], stored, inputs[index][half])
        for index in range(self.inputs):
            products = self._across([b.load(self.sums[row][index][0]) for row in range(self.rows)])
            _store(b, products, self._address(self.out, out_stride, index, constant(0)))


class _Mixed(Tile):
    """Writes the instructions of `_mixed`. Its rows are heads; it has no sums but those that are replaced."""

    def __init__(self, builder: Any, kind: str, heads: int, vectors: int, *arguments: Any) -> None:
        super().__init__(builder, kind, 0, 0, *arguments)
        self.heads, self.vectors = heads, vectors

    def emit_to(self, out_stride: Any) -> None:
        b = self.b
        places = [
            [self._address(self.out, out_stride, head, constant(4 * LANES * part)) for part in range(self.vectors)]
            for head in range(self.heads)
        ]
        sums = []
        for head, parts in enumerate(places):
            factor = self._splat(self._address(self.s, constant(4), head, constant(0)))
            sums.append([slot(b, b.fmul(self._load(place, _F32, LANES, 4), factor)) for place in parts])
        with cgutils.for_range_slice(b, constant(0), self.k, constant(1), intp=_I64) as (position, _):
            stored = self._stored(b.add(self.w, b.mul(position, self.w_stride)))
            for head in range(self.heads):
                weight = self._splat(self._address(self.x, self.x_stride, head, b.shl(position, constant(2))))
                for part in range(self.vectors):
                    self._add_product(sums[head][part], stored[part], weight)
        for head, parts in enumerate(places):
            for part, place in enumerate(parts):
                _store(b, b.load(sums[head][part]), place)

    def _stored(self, start: Any) -> list[Any]:
        """`vectors` vectors of one value, as fp32."""
        found: list[Any] = []
        for step in range(self.vectors // 2):
            place = self.b.add(start, constant(step * STEP * _ROW_BITS[self.kind] // 8))
            self._prefetch(place)
            found += self._decode(place)
        return found

    def _splat(self, address: Any) -> Any:
        """The fp32 number at an address in every lane."""
        one = self._load(address, _F32, 1, 4)
        return self.b.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES))


def _store(builder: Any, vector: Any, address: Any) -> None:
    builder.store(vector, builder.inttoptr(address, vector.type.as_pointer())).align = 4


@intrinsic
def largest(typingctx: Any, address: Any, count: Any) -> Any:
    """The largest of `count` fp32 numbers at an address, a multiple of LANES. None may be a NaN.

    Spelled out, for a loop over a maximum is left to one lane.
    """

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        start, count = arguments
        found = slot(builder, ir.Constant(_VECTOR, [-1e30] * LANES))
        with cgutils.for_range_slice(builder, constant(0), count, constant(LANES), intp=_I64) as (at, _):
            place = builder.add(start, builder.shl(at, constant(2)))
            numbers = builder.load(builder.inttoptr(place, _VECTOR.as_pointer()))
            numbers.align = 4
            before = builder.load(found)
            builder.store(builder.select(builder.fcmp_ordered(">", numbers, before), numbers, before), found)
        shape = ir.FunctionType(_F32, [_VECTOR])
        reduce = cgutils.get_or_insert_function(builder.module, shape, f"llvm.vector.reduce.fmax.v{LANES}f32")
        return builder.call(reduce, [builder.load(found)], fastmath=("nnan",))

    return types.float32(types.int64, types.int64), codegen


_scores_of_one, _scores_of_two, _scores_of_three = _scores(1), _scores(2), _scores(3)
_narrow_one, _narrow_two, _narrow_three = _mixed(1, 2), _mixed(2, 2), _mixed(3, 2)
_wide_one, _wide_two, _wide_three = _mixed(1, 4), _mixed(2, 4), _mixed(3, 4)


@njit(error_model="numpy")
def scores(
    kv: Any, keys: int, stride: int, count: int, x: int, x_stride: int, heads: int, size: int, out: int, out_stride: int
) -> None:
    """`count` keys times `heads` queries, to `out` [heads, out_stride]. KEYS - 1 numbers behind may be overwritten."""
    for key in range(0, count, KEYS):
        place, to, done = keys + key * stride, out + 4 * key, 0
        while heads - done >= HEADS:
            _scores_of_three(kv, place, stride, x + done * x_stride, x_stride, size, to + done * out_stride, out_stride)
            done += HEADS
        if heads - done == 2:
            _scores_of_two(kv, place, stride, x + done * x_stride, x_stride, size, to + done * out_stride, out_stride)
        elif heads - done == 1:
            _scores_of_one(kv, place, stride, x + done * x_stride, x_stride, size, to + done * out_stride, out_stride)


@njit(error_model="numpy")
def mix(
    kv: Any,
    values: int,
    stride: int,
    count: int,
    weights: int,
    weights_stride: int,
    factors: int,
    heads: int,
    size: int,
    out: int,
    out_stride: int,
) -> None:
    """The sums so far of `heads` heads, `size` numbers each, times their factors, plus `count` values by weight."""
    done = 0
    while done < heads:
        many = min(HEADS, heads - done)
        by, factor, to = weights + done * weights_stride, factors + 4 * done, out + done * out_stride
        if size % (4 * LANES) == 0:
            for column in range(0, size, 4 * LANES):
                place, at = values + column * (stride // size), to + 4 * column
                if many == 3:
                    _wide_three(kv, place, stride, count, by, weights_stride, factor, at, out_stride)
                elif many == 2:
                    _wide_two(kv, place, stride, count, by, weights_stride, factor, at, out_stride)
                else:
                    _wide_one(kv, place, stride, count, by, weights_stride, factor, at, out_stride)
        else:
            for column in range(0, size, STEP):
                place, at = values + column * (stride // size), to + 4 * column
                if many == 3:
                    _narrow_three(kv, place, stride, count, by, weights_stride, factor, at, out_stride)
                elif many == 2:
                    _narrow_two(kv, place, stride, count, by, weights_stride, factor, at, out_stride)
                else:
                    _narrow_one(kv, place, stride, count, by, weights_stride, factor, at, out_stride)
        done += many
