"""Compiled functions as calls of their own, one at a time: threads, where they meet, and memory for each of them."""

from __future__ import annotations

from threading import Lock

import numpy as np
import torch
from numpy.typing import NDArray

from engine.kernels.team import meeting_place, team

CALL = ["p_room", "p_counter", "threads"]
"""What every call's table begins with: the threads' memory, where they meet, how many they are."""

_lock = Lock()
_room = torch.empty(0, dtype=torch.uint8)
# One for each number of threads: it only grows, for a thread may still look at it when the next call begins.
_places: dict[int, NDArray[np.int64]] = {}


def call(function: int, fields: tuple[int, ...], room_bytes: int) -> None:
    """Run the function at an address in all of torch's threads, with a table of `CALL` and then `fields`.

    room_bytes: memory that each thread has, in whole cache lines. It is kept from call to call.
    """
    global _room
    threads = torch.get_num_threads()
    run = team(threads)
    with _lock:
        if len(_room) < threads * room_bytes:
            _room = torch.zeros(threads * room_bytes, dtype=torch.uint8)
        if threads not in _places:
            _places[threads] = meeting_place(threads)
        table = np.array((_room.data_ptr(), _places[threads].ctypes.data, threads, *fields), np.int64)
        run(function, table.ctypes.data)
