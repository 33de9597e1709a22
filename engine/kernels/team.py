"""Threads that run one compiled function together: torch's own, where its OpenMP library lets itself be asked.

On Linux torch computes with the threads of an OpenMP library. After a job they spin for a while before they sleep, so
a step finds them awake (3 to 30 us here, against 60 to 100 us and often more for threads of Python's), and there is no
second set of threads to fight with them over the cores. Elsewhere a team of Python's threads does the same work; in
neither case is Python's lock held meanwhile.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from threading import Lock, Thread

import numpy as np
from numpy.typing import NDArray

from engine.kernels.entry import counter_address

PATIENCE = 1 << 24
"""Looks at a meeting's counter (some milliseconds) before a thread that waits lets others have its processor. Shares
differ by a tenth of that; one who yields sooner gives a whole time slice to whatever else runs, at every meeting."""
LESS_PATIENCE = 1 << 17
"""The same where there are more threads than processors: the one that is waited for may wait for a processor itself.
Less costs more here too: with 2^10 a step of three threads on two took three times as long."""

Run = Callable[[int, int], None]
"""Calls the C function at one address with another address, in every thread at once."""


def meeting_place(threads: int) -> NDArray[np.int64]:
    """Where so many threads meet (`atoms.meet`): arrivals; how many ever took part; looks before one yields."""
    return np.array([0, 0, PATIENCE if threads <= processors() else LESS_PATIENCE], np.int64)


def processors() -> int:
    """Processors that this process may run on, hyperthreads counted."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def team(threads: int) -> Run:
    """What runs a function in `threads` threads, the caller's among them."""
    return _openmp(threads) or Team(threads).run


def _openmp(threads: int) -> Run | None:
    """The team of the OpenMP library that torch has loaded, if it gives as many threads as asked for."""
    try:
        parallel = ctypes.CDLL(None).GOMP_parallel  # libgomp's, and LLVM's library has it too
    except AttributeError:
        return None
    parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    parallel.restype = None

    def run(function: int, address: int) -> None:
        parallel(function, address, threads, 0)

    # A limit on threads (OMP_THREAD_LIMIT, OMP_DYNAMIC) would leave the others waiting for one that never comes.
    came = ctypes.c_int64(0)
    run(counter_address(), ctypes.addressof(came))
    return run if came.value == threads else None


class Team:
    """`threads` of Python's threads, asleep between calls."""

    def __init__(self, threads: int) -> None:
        self._job = (0, 0)
        self._starts = [Lock() for _ in range(threads - 1)]
        for start in self._starts:
            start.acquire()
            Thread(target=self._follow, args=(start,), daemon=True, name="kernels").start()

    def run(self, function: int, address: int) -> None:
        """As `Run`. The function itself has to wait for all before it returns: nobody is waited for here."""
        self._job = (function, address)
        for start in self._starts:
            start.release()
        _call(function, address)

    def _follow(self, start: Lock) -> None:
        while True:
            start.acquire()
            _call(*self._job)


def _call(function: int, address: int) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(function)(address)
