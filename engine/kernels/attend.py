"""Grouped-query attention of a step's new positions over the KV cache: rotary, cache write, softmax, mix.

One item is one key head of one sequence with all query heads that share it, so that a key is read once for all of them.
Keys and values are passed a RUN at a time, with a softmax that is carried on from run to run: what is held between them
is then a few cache lines whatever the context is, and memory is read without a pause (Milakov and Gimelshein, 2018;
FlashAttention, Dao et al., 2022).

Where there are too few such items to go round, a context is cut into one range of positions for each thread; each then
holds a softmax over its own range, and `merge` puts them together (as FlashDecoding does, Dao et al., 2023).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from engine.kernels.arithmetic import add_scaled, exp, norm, rotate, scale_row
from engine.kernels.atoms import floats, load_float, store_float
from engine.kernels.heads import largest, mix, scores
from engine.kernels.kept import put, scale_by
from engine.kernels.products import row_bytes
from engine.kernels.tiles import LANES

RUN = 128
"""Positions taken at a time, a multiple of LANES: 32 KB of keys of 64 numbers in fp32, which a core's caches hold."""
_ZERO, _ONE, _LEAST = np.float32(0), np.float32(1), np.float32(-1e30)


def room_bytes(group: int, head_dim: int) -> int:
    """Memory a thread needs for an item with `group` query heads: queries, a key, scores, and three numbers a head."""
    return 4 * (head_dim * (group + 1) + RUN * group + 3 * group)


@njit(error_model="numpy")
def attend(kv: Any, step: Any, layer: Any, index: int, item: int, private: int) -> None:
    """One item's attention, of all new positions. kv: an empty array that stands for the cache's format (`kept`)."""
    pairs = step.batch * step.kv_heads
    split, pair = item // pairs, item % pairs
    sequence, head = pair // step.kv_heads, pair % step.kv_heads
    keys = ((2 * index * step.batch + sequence) * step.kv_heads + head) * step.capacity
    values = keys + pairs * step.capacity
    room = private + step.attention_at
    if split == step.splits - 1:
        _write_cache(kv, step, layer, sequence, head, keys, values, room)
    for token in range(step.tokens):
        first = step.start * split // step.splits
        last = step.start * (split + 1) // step.splits
        if split == step.splits - 1:
            last = step.start + token + 1
        _queries(step, layer, sequence, head, token, room)
        _attend_one(kv, step, sequence, head, token, split, keys + first, values + first, last - first, room)


@njit(error_model="numpy")
def _write_cache(kv: Any, step: Any, layer: Any, sequence: int, head: int, keys: int, values: int, turned: int) -> None:
    """This step's keys, normed where the model does so and turned, and its values, to their places.

    keys, values: the numbers, in the cache, of the first position's. turned: memory for one key.
    """
    size, stride = step.head_dim, row_bytes(kv, step.head_dim)
    for token in range(step.tokens):
        row = step.p_qkv + (sequence * step.tokens + token) * step.qkv_stride
        source = row + 4 * size * (step.heads + head)
        position = step.start + token
        if layer.p_k_norm != 0:
            norm(source, layer.p_k_norm, source, size, step.eps)
        angles = 4 * size * position
        rotate(source, turned, step.p_cos + angles, step.p_signed_sin + angles, size, _ONE)
        place = keys + position
        put(kv, turned, step.p_cache + place * stride, step.p_cache_scales + 2 * place, size)
        place = values + position
        value = row + 4 * size * (step.heads + step.kv_heads + head)
        put(kv, value, step.p_cache + place * stride, step.p_cache_scales + 2 * place, size)


@njit(error_model="numpy")
def _queries(step: Any, layer: Any, sequence: int, head: int, token: int, queries: int) -> None:
    """One new position's query heads of a group, normed where the model does so, turned and scaled, to `queries`."""
    size, group = step.head_dim, step.heads // step.kv_heads
    row = step.p_qkv + (sequence * step.tokens + token) * step.qkv_stride
    angles = 4 * size * (step.start + token)
    for one in range(group):
        source = row + 4 * size * (head * group + one)
        query = queries + 4 * size * one
        if layer.p_q_norm != 0:
            norm(source, layer.p_q_norm, query, size, step.eps)
            source = query
        rotate(source, query, step.p_cos + angles, step.p_signed_sin + angles, size, step.scale)


@njit(error_model="numpy")
def _attend_one(
    kv: Any, step: Any, sequence: int, head: int, token: int, split: int, keys: int, values: int, count: int,
    queries: int,
) -> None:  # fmt: skip
    """One new position's query heads of a group over `count` positions, whose numbers begin at `keys` and `values`."""
    size, group, stride = step.head_dim, step.heads // step.kv_heads, row_bytes(kv, step.head_dim)
    row, first_head = sequence * step.tokens + token, head * group
    weights = queries + 4 * size * (group + 1)
    factors = weights + 4 * RUN * group
    peaks, totals = factors + 4 * group, factors + 8 * group
    partial = step.p_partial + 4 * (size + 2) * ((row * step.heads + first_head) * step.splits + split)
    out, out_stride = partial + 8, 4 * (size + 2) * step.splits
    if step.splits == 1:
        out, out_stride = step.p_mixed + row * step.mixed_stride + 4 * size * first_head, 4 * size
    for one in range(group):
        _clear(out + one * out_stride, size)
        store_float(peaks + 4 * one, _LEAST)
        store_float(totals + 4 * one, _ZERO)
    for start in range(0, count, RUN):
        many = min(RUN, count - start)
        key, value = keys + start, values + start
        scores(kv, step.p_cache + key * stride, stride, many, queries, 4 * size, group, size, weights, 4 * RUN)
        for one in range(group):
            scale_by(kv, weights + 4 * RUN * one, step.p_cache_scales + 2 * key, many)
            _weigh(weights + 4 * RUN * one, many, peaks + 4 * one, totals + 4 * one, factors + 4 * one)
            scale_by(kv, weights + 4 * RUN * one, step.p_cache_scales + 2 * value, many)
        mix(
            kv, step.p_cache + value * stride, stride, many, weights, 4 * RUN, factors, group, size, out, out_stride
        )  # fmt: skip
    for one in range(group):
        if step.splits == 1:
            scale_row(out + one * out_stride, size, _ONE / load_float(totals + 4 * one))
        else:
            store_float(out + one * out_stride - 8, load_float(peaks + 4 * one))
            store_float(out + one * out_stride - 4, load_float(totals + 4 * one))


@njit(fastmath=True, error_model="numpy")
def _weigh(weights: int, count: int, peak: int, total: int, factor: int) -> None:
    """A run's scores to e^(score - the largest so far), in place; what came before shrinks by `factor`.

    peak, total: of the scores so far, the largest and the sum of their e^(score - largest); carried on.
    """
    padded = (count + LANES - 1) // LANES * LANES
    values = floats(weights, padded)
    for i in range(count, padded):
        values[i] = _LEAST
    before = load_float(peak)
    now = max(before, largest(weights, padded))
    shrunk = exp(before - now)
    added = _ZERO
    for i in range(padded):
        values[i] = exp(values[i] - now)
        added += values[i]
    store_float(peak, now)
    store_float(factor, shrunk)
    store_float(total, load_float(total) * shrunk + added)


@njit(error_model="numpy")
def _clear(target: int, size: int) -> None:
    out = floats(target, size)
    for i in range(size):
        out[i] = _ZERO


@njit(error_model="numpy")
def merge(step: Any, target: int) -> None:
    """All query heads of all rows from their partial softmaxes, to `target` [rows, mixed_stride].

    Each range's sum was taken relative to its own largest score; here all are made relative to the largest of all.
    """
    size = step.head_dim
    for row in range(step.rows):
        for head in range(step.heads):
            base = step.p_partial + 4 * (size + 2) * (row * step.heads + head) * step.splits
            peak, total = _LEAST, _ZERO
            for split in range(step.splits):
                peak = max(peak, load_float(base + 4 * (size + 2) * split))
            out = target + row * step.mixed_stride + 4 * size * head
            _clear(out, size)
            for split in range(step.splits):
                part = base + 4 * (size + 2) * split
                factor = exp(load_float(part) - peak)
                total += factor * load_float(part + 4)
                add_scaled(out, part + 8, size, factor)
            scale_row(out, size, _ONE / total)
