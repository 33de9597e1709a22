"""How much of this machine's processor others use while we measure: the cause a probe before and after can miss.

Counts processor time of the cores this process may run on, its own taken off, time stolen by other virtual machines
included. Knows nothing of what is being measured.
"""

from __future__ import annotations

import os
import time

import psutil

SHORTEST_S = 0.3
"""The system counts processor time in steps of 10 ms: over less than this a share would be mostly rounding."""


class Neighbours:
    """Counts from the moment it is made."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._began = self._reading()

    def other_cores(self) -> float | None:
        """Cores' worth of work that was not ours, on average since the start; None where too little time went by."""
        began, now = self._began, self._reading()
        elapsed_s = now[0] - began[0]
        if elapsed_s < SHORTEST_S:
            return None
        return max(0.0, (now[1] - began[1]) / elapsed_s)

    def _reading(self) -> tuple[float, float]:
        """Seconds on the clock, and seconds of processor time that others have had."""
        every = psutil.cpu_times(percpu=True)
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(every))
        busy_s = sum(_busy_s(every[core]) for core in allowed if core < len(every))
        own = self._process.cpu_times()
        return time.monotonic(), busy_s - own.user - own.system


def _busy_s(times: object) -> float:
    # Guests are counted in user and nice already; what a system does not count is absent.
    return sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal"))
