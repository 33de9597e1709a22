"""One matrix of weights times a few rows by the kernel that a step uses for it, alone: for timing a shape by itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import carray, njit
from torch import Tensor

from engine.kernels.atoms import fetch_add, meet, pointer
from engine.kernels.entry import compiled
from engine.kernels.products import product, share
from engine.kernels.team import team
from engine.kernels.whole import MOST_ROWS, room_bytes

_FIELDS = ["threads", "p_counter", "p_weights", "p_scales", "k", "group", "n", "rows"]
_ROOM = ["p_room", "room_bytes"]  # each thread's own memory
PRODUCT = np.dtype([(name, np.int64) for name in (*_FIELDS, "p_x", "x_stride", "p_out", "out_stride", *_ROOM)])


@njit(error_model="numpy")
def run_product(like: Any, address: int) -> None:
    """One thread's share of the outputs. Returns when all threads are done."""
    job = carray(pointer(address), (1,), PRODUCT)[0]
    thread = fetch_add(job.p_counter + 8, 1) % job.threads
    first, last = share(job.n, thread, job.threads)
    product(
        like,
        job.p_weights,
        job.p_scales,
        0,
        job.k,
        job.group,
        first,
        last,
        job.p_x,
        job.x_stride,
        job.rows,
        job.p_out,
        job.out_stride,
        False,
        job.p_room + thread * job.room_bytes,
    )
    meet(job.p_counter, job.threads)


def _fp32(address: int) -> None:
    run_product(carray(pointer(address), (0,), np.float32), address)


def _int8(address: int) -> None:
    run_product(carray(pointer(address), (0,), np.int8), address)


def _int4(address: int) -> None:
    run_product(carray(pointer(address), (0,), np.uint8), address)


_KINDS: dict[str, Callable[[int], None]] = {"fp32": _fp32, "int8": _int8, "int4": _int4}


@cache
def _address(kind: str) -> int:
    return compiled(_KINDS[kind])


class SingleProduct:
    """x W^T as a step computes it, with W [n, k] held as "fp32", "int8" or "int4".

    stored, scales: as `engine.model.packed` keeps them; scales is None for fp32. k: numbers in a stored row, the zeros
    that fill the last group of an int4 row included. group: weights that share a scale.
    """

    def __init__(self, kind: str, stored: Tensor, scales: Tensor | None, *, k: int, n: int, group: int) -> None:
        self._held = (stored, scales)
        self._function, self._threads, self._n = _address(kind), torch.get_num_threads(), n
        self._counter = np.zeros(2, np.int64)
        room = room_bytes(MOST_ROWS, k, int8=kind == "int8")
        self._room = torch.zeros(self._threads * room, dtype=torch.uint8)
        self._job = np.zeros(1, PRODUCT)
        fields = {
            "threads": self._threads,
            "p_counter": self._counter.ctypes.data,
            "p_weights": stored.data_ptr(),
            "p_scales": 0 if scales is None else scales.data_ptr(),
            "k": k,
            "group": group,
            "n": n,
            "p_room": self._room.data_ptr(),
            "room_bytes": room,
            "out_stride": 4 * n,
        }
        for name, value in fields.items():
            self._job[name] = value

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, k] fp32 -> [rows, n] fp32."""
        out = torch.empty(len(x), self._n)
        self._job["rows"], self._job["p_x"], self._job["x_stride"] = len(x), x.data_ptr(), 4 * x.stride(0)
        self._job["p_out"] = out.data_ptr()
        team(self._threads)(self._function, self._job.ctypes.data)
        return out
