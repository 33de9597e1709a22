"""Grouped-query attention of a step's new positions over the KV cache: rotary, cache write, softmax, mix.

One item is one key head of one sequence with all query heads that share it, so that a key is read once for all of them.
Where there are too few such items to go round, a context is cut into one range of positions for each thread; each then
holds a softmax over its own range, and `merge` puts them together (as FlashDecoding does, Dao et al., 2023).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from engine.kernels.arithmetic import add_scaled, exp, mix, norm, rotate, scale_row, softmax
from engine.kernels.atoms import floats, load_float, store_float
from engine.kernels.products import product

_ZERO, _ONE = np.float32(0), np.float32(1)


@njit(error_model="numpy")
def attend(step: Any, layer: Any, index: int, item: int, private: int) -> None:
    """One item's attention, of all new positions."""
    pairs = step.batch * step.kv_heads
    split, pair = item // pairs, item % pairs
    sequence, head = pair // step.kv_heads, pair % step.kv_heads
    head_bytes = 4 * step.head_dim
    place = ((2 * index * step.batch + sequence) * step.kv_heads + head) * step.capacity * head_bytes
    keys = step.p_cache + place
    values = keys + pairs * step.capacity * head_bytes
    if split == step.splits - 1:
        _write_cache(step, layer, sequence, head, keys, values)
    for token in range(step.tokens):
        first = step.start * split // step.splits
        last = step.start * (split + 1) // step.splits
        if split == step.splits - 1:
            last = step.start + token + 1
        _attend_one(
            step, layer, sequence, head, token, split, keys + first * head_bytes, values + first * head_bytes,
            last - first, private,
        )  # fmt: skip


@njit(error_model="numpy")
def _write_cache(step: Any, layer: Any, sequence: int, head: int, keys: int, values: int) -> None:
    """This step's keys, normed where the model does so and turned, and its values, to their places."""
    size = step.head_dim
    for token in range(step.tokens):
        row = step.p_qkv + (sequence * step.tokens + token) * step.qkv_stride
        source = row + 4 * size * (step.heads + head)
        position = 4 * size * (step.start + token)
        if layer.p_k_norm != 0:
            norm(source, layer.p_k_norm, source, size, step.eps)
        rotate(source, keys + position, step.p_cos + position, step.p_signed_sin + position, size, _ONE)
        value = floats(row + 4 * size * (step.heads + step.kv_heads + head), size)
        target = floats(values + position, size)
        for i in range(size):
            target[i] = value[i]


@njit(error_model="numpy")
def _attend_one(
    step: Any, layer: Any, sequence: int, head: int, token: int, split: int, keys: int, values: int, count: int,
    private: int,
) -> None:  # fmt: skip
    """One new position's query heads of a group over `count` positions from `keys` and `values` on."""
    size, group = step.head_dim, step.heads // step.kv_heads
    row = sequence * step.tokens + token
    first_head = head * group
    queries, scores, sums = private + step.queries_at, private + step.scores_at, private + step.sums_at
    position = 4 * size * (step.start + token)
    for one in range(group):
        source = step.p_qkv + row * step.qkv_stride + 4 * size * (first_head + one)
        query = queries + 4 * size * one
        if layer.p_q_norm != 0:
            norm(source, layer.p_q_norm, query, size, step.eps)
            source = query
        rotate(source, query, step.p_cos + position, step.p_signed_sin + position, size, step.scale)
    fp32 = floats(keys, 0)  # the cache's format
    product(fp32, keys, 0, 0, size, size, 0, count, queries, 4 * size, group, scores, 4 * step.capacity, False, sums)
    for one in range(group):
        weights = scores + 4 * step.capacity * one
        largest, total = softmax(weights, count)
        if step.splits == 1:
            target = step.p_mixed + row * step.mixed_stride + 4 * size * (first_head + one)
            mix(weights, values, count, size, target)
            scale_row(target, size, _ONE / total)
        else:
            partial = step.p_partial + 4 * (size + 2) * ((row * step.heads + first_head + one) * step.splits + split)
            mix(weights, values, count, size, partial + 8)
            store_float(partial, largest)
            store_float(partial + 4, total)


@njit(error_model="numpy")
def merge(step: Any, target: int) -> None:
    """All query heads of all rows from their partial softmaxes, to `target` [rows, mixed_stride].

    Each range's sum was taken relative to its own largest score; here all are made relative to the largest of all.
    """
    size = step.head_dim
    for row in range(step.rows):
        for head in range(step.heads):
            base = step.p_partial + 4 * (size + 2) * (row * step.heads + head) * step.splits
            largest, total = np.float32(-1e30), _ZERO
            for split in range(step.splits):
                largest = max(largest, load_float(base + 4 * (size + 2) * split))
            out = target + row * step.mixed_stride + 4 * size * head
            scale_row(out, size, _ZERO)
            for split in range(step.splits):
                part = base + 4 * (size + 2) * split
                factor = exp(load_float(part) - largest)
                total += factor * load_float(part + 4)
                add_scaled(out, part + 8, size, factor)
            scale_row(out, size, _ONE / total)
