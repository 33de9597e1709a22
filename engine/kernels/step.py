"""A whole step of a dense decoder as one function that every thread runs from end to end.

Between two meetings each thread does its share: a range of outputs of a linear, or some heads of the attention (in a
long context a range of its positions). Norms are so small that every thread computes them for itself rather than wait
for another. A layer is five such shares:

    norm, qkv | rotary, cache, attention | out + residual | norm, gate/up, SwiGLU | down + residual

Thread 0 notes the time after each, which costs 25 ns of the 100 us that a share takes.
"""

from __future__ import annotations

from typing import Any

from numba import carray, njit

from engine.kernels.arithmetic import norm
from engine.kernels.atoms import fetch_add, load_int, mark, meet, pointer, store_float
from engine.kernels.attend import attend, merge
from engine.kernels.layout import LAYER, MARKS_BEFORE, MARKS_PER_LAYER, STEP
from engine.kernels.products import gated_product, product, share, unpack


@njit(error_model="numpy")
def run_step(like: Any, kv: Any, address: int) -> None:
    """One thread's part of the step that `layout.STEP` describes at an address. Returns when all threads are done.

    like, kv: empty arrays that stand for the weights' format (see `products`) and the cache's (see `kept`).
    """
    step = carray(pointer(address), (1,), STEP)[0]
    layers = carray(pointer(step.p_layers), (step.layers,), LAYER)
    thread = fetch_add(step.p_counter + 8, 1) % step.threads
    if thread == 0:
        mark(step.p_marks, step.clock)
    _embed(like, step, thread)
    _meet(step, thread, MARKS_BEFORE - 1)
    for index in range(step.layers):
        first_mark = MARKS_BEFORE + MARKS_PER_LAYER * index
        _mixer(like, kv, step, layers[index], index, thread, first_mark)
        _feed_forward(like, step, layers[index], thread, first_mark + 3)
    _head(like, step, thread)
    _meet(step, thread, MARKS_BEFORE + MARKS_PER_LAYER * step.layers)


@njit(error_model="numpy")
def _meet(step: Any, thread: int, moment: int) -> None:
    meet(step.p_counter, step.threads)
    if thread == 0:
        mark(step.p_marks + 16 * moment, step.clock)


@njit(error_model="numpy")
def _embed(like: Any, step: Any, thread: int) -> None:
    """Each new token's row of the embedding, to `x`."""
    for row in range(thread, step.rows, step.threads):
        token = load_int(step.p_ids + 8 * row)
        for index in range(step.hidden):
            value = unpack(like, step.p_embedding, step.p_embedding_scale, token, step.hidden_k, step.group, index)
            store_float(step.p_x + row * step.x_stride + 4 * index, value)


@njit(error_model="numpy")
def _norm_rows(step: Any, weight: int, private: int) -> None:
    for row in range(step.rows):
        norm(step.p_x + row * step.x_stride, weight, private + row * step.normed_stride, step.hidden, step.eps)


@njit(error_model="numpy")
def _mixer(like: Any, kv: Any, step: Any, layer: Any, index: int, thread: int, moment: int) -> None:
    private = step.p_private + thread * step.private_bytes
    sums = private + step.sums_at
    inner = step.heads * step.head_dim
    _norm_rows(step, layer.p_input_norm, private)
    first, last = share(inner + 2 * step.kv_heads * step.head_dim, thread, step.threads)
    product(
        like, layer.p_qkv, layer.p_qkv_scale, layer.p_qkv_bias, step.hidden_k, step.group, first, last,
        private, step.normed_stride, step.rows, step.p_qkv, step.qkv_stride, False, sums,
    )  # fmt: skip
    _meet(step, thread, moment)

    items = step.batch * step.kv_heads * step.splits
    for item in range(items * thread // step.threads, items * (thread + 1) // step.threads):
        attend(kv, step, layer, index, item, private)
    _meet(step, thread, moment + 1)

    mixed = step.p_mixed
    if step.splits > 1:
        mixed = private + step.merged_at
        merge(step, mixed)
    first, last = share(step.hidden, thread, step.threads)
    product(
        like, layer.p_out, layer.p_out_scale, layer.p_out_bias, step.inner_k, step.group, first, last,
        mixed, step.mixed_stride, step.rows, step.p_x, step.x_stride, True, sums,
    )  # fmt: skip
    _meet(step, thread, moment + 2)


@njit(error_model="numpy")
def _feed_forward(like: Any, step: Any, layer: Any, thread: int, moment: int) -> None:
    private = step.p_private + thread * step.private_bytes
    sums = private + step.sums_at
    _norm_rows(step, layer.p_post_norm, private)
    first, last = share(step.width, thread, step.threads)
    gated_product(
        like, layer.p_gate_up, layer.p_gate_up_scale, layer.p_gate_up_bias, step.hidden_k, step.group, step.width,
        first, last, private, step.normed_stride, step.rows, step.p_gated, step.gated_stride, sums,
    )  # fmt: skip
    _meet(step, thread, moment)

    first, last = share(step.hidden, thread, step.threads)
    product(
        like, layer.p_down, layer.p_down_scale, layer.p_down_bias, step.width_k, step.group, first, last,
        step.p_gated, step.gated_stride, step.rows, step.p_x, step.x_stride, True, sums,
    )  # fmt: skip
    _meet(step, thread, moment + 1)


@njit(error_model="numpy")
def _head(like: Any, step: Any, thread: int) -> None:
    """Logits: of each sequence's last new token unless all are asked for, since this is the largest matrix."""
    private = step.p_private + thread * step.private_bytes
    rows = step.rows if step.every else step.batch
    for index in range(rows):
        row = index if step.every else (index + 1) * step.tokens - 1
        norm(step.p_x + row * step.x_stride, step.p_norm, private + index * step.normed_stride, step.hidden, step.eps)
    first, last = share(step.vocab, thread, step.threads)
    product(
        like, step.p_head, step.p_head_scale, step.p_head_bias, step.hidden_k, step.group, first, last,
        private, step.normed_stride, rows, step.p_logits, 4 * step.vocab, False, private + step.sums_at,
    )  # fmt: skip
