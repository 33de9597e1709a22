"""A call that reads memory with the compiled kernels, for whoever measures bandwidth."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.kernels.entry import reading_address
from engine.kernels.reading import COLUMNS
from engine.kernels.team import meeting_place, team


def reading(address: int, count: int, threads: int) -> Callable[[], None]:
    """A call that reads `count` fp32 numbers (whole rows of COLUMNS) at an address once, with so many threads."""
    rows = count // COLUMNS
    x, y = np.full(COLUMNS, 0.5, np.float32), np.zeros(rows + 16 * threads, np.float32)
    table = np.array([address, rows, x.ctypes.data, y.ctypes.data, threads, *meeting_place(threads)], np.int64)
    run, function = team(threads), reading_address()

    def read() -> None:
        assert len(x) + len(y)  # the table has no more than their addresses
        run(function, table.ctypes.data)

    return read
