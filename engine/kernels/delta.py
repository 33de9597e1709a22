"""One token of the gated delta rule in one pass over the state: what `engine.model.delta_rule.step` computes.

torch passes over the state five times, and of a large model's it does not keep much in cache in between. Here a head's
state (64 KB where keys and values have 128 numbers) is read once for both of its uses, and written while it is near.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import carray, njit
from torch import Tensor

from engine.kernels.atoms import CACHE_LINE, fetch_add, floats, load_float, meet, pointer
from engine.kernels.calls import CALL, call
from engine.kernels.entry import compiled

_SIZES = ["heads", "keys", "values", "channels"]  # heads of all sequences; channels: numbers in a head's decay
_TENSORS = ["p_queries", "p_keys", "p_values", "p_decay", "p_strength", "p_state", "p_out"]
DELTA = np.dtype([(name, np.int64) for name in (*CALL, *_SIZES, "room_bytes", *_TENSORS)])


@njit(error_model="numpy")
def run_delta(address: int) -> None:
    """One thread's share of the heads. Returns when all threads are done."""
    job = carray(pointer(address), (1,), DELTA)[0]
    thread = fetch_add(job.p_counter + 8, 1) % job.threads
    room = job.p_room + thread * job.room_bytes
    for head in range(job.heads * thread // job.threads, job.heads * (thread + 1) // job.threads):
        _head(job, head, room)
    meet(job.p_counter, job.threads)


@njit(fastmath=True, error_model="numpy")
def _head(job: Any, head: int, room: int) -> None:
    """Forget, write and read for one head; `room` takes what the state said of the key, and then what is written."""
    keys, values = job.keys, job.values
    key, query = floats(job.p_keys + 4 * head * keys, keys), floats(job.p_queries + 4 * head * keys, keys)
    value = floats(job.p_values + 4 * head * values, values)
    state = job.p_state + 4 * head * keys * values
    written, out = floats(room, values), floats(job.p_out + 4 * head * values, values)
    for j in range(values):
        written[j] = np.float32(0)
        out[j] = np.float32(0)
    overlap = np.float32(0)
    for i in range(keys):
        kept = _decay(job, head, i)
        probe, read = key[i] * kept, query[i] * kept
        overlap += key[i] * query[i]
        row = floats(state + 4 * i * values, values)
        for j in range(values):
            written[j] += probe * row[j]
            out[j] += read * row[j]
    strength = load_float(job.p_strength + 4 * head)
    for j in range(values):
        written[j] = strength * (value[j] - written[j])
        out[j] += overlap * written[j]
    for i in range(keys):
        kept = _decay(job, head, i)
        row = floats(state + 4 * i * values, values)
        for j in range(values):
            row[j] = kept * row[j] + key[i] * written[j]


@njit(inline="always")
def _decay(job: Any, head: int, i: int) -> Any:
    """What a head keeps of its state's row i."""
    return load_float(job.p_decay + 4 * (head * job.channels + (i if job.channels > 1 else 0)))


def _delta(address: int) -> None:
    run_delta(address)


@cache
def _address() -> int:
    return compiled(_delta)


def step(queries: Tensor, keys: Tensor, values: Tensor, decay: Tensor, strength: Tensor, state: Tensor) -> Tensor:
    """As `engine.model.delta_rule.step`, all fp32, with the decay itself [B, H, 1] or [B, H, dk] and not its logarithm.

    state: [B, H, dk, dv], contiguous, changed in place.
    """
    batch, heads, key_size, value_size = state.shape
    out = torch.empty(batch, heads, value_size)
    given = [tensor.contiguous() for tensor in (queries, keys, values, decay, strength)]
    room = -(-4 * value_size // CACHE_LINE) * CACHE_LINE
    sizes = (batch * heads, key_size, value_size, decay.shape[-1], room)
    call(_address(), (*sizes, *[tensor.data_ptr() for tensor in (*given, state, out)]), room)
    return out
