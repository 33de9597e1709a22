"""Reading memory as fast as the kernels can: what the roof of a step has to be compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit

from engine.kernels.atoms import fetch_add, meet, pointer
from engine.kernels.products import product, share

COLUMNS = 1024
_TABLE = ("matrix", "rows", "x", "y", "threads", "arrivals", "came", "patience")


@njit(error_model="numpy")
def run_reading(fp32: Any, address: int) -> None:
    """One thread's part of a matrix [rows, COLUMNS] times a vector, by a table of `_TABLE` at an address."""
    table = carray(pointer(address), (8,), np.int64)
    rows, threads = table[1], table[4]
    thread = fetch_add(address + 48, 1) % threads
    first, last = share(rows, thread, threads)
    sums = table[3] + 4 * rows + 64 * thread
    product(fp32, table[0], 0, 0, COLUMNS, COLUMNS, first, last, table[2], 0, 1, table[3], 0, False, sums)
    meet(address + 40, threads)
