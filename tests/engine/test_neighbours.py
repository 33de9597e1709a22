"""Others' work is seen, and ours is not taken for it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import psutil

from engine.neighbours import SHORTEST_S, Neighbours

WATCH_S = 1.5


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_another_process_is_counted_and_our_own_is_not() -> None:
    ours = Neighbours()
    began = time.process_time()
    spin(WATCH_S)
    alone, own = ours.other_cores(), (time.process_time() - began) / WATCH_S
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        theirs = Neighbours()
        time.sleep(WATCH_S)
        beside = theirs.other_cores()
        used = sum(busy_cpu(busy.pid)) / WATCH_S
    finally:
        busy.kill()
        busy.wait()
    assert alone is not None
    assert beside is not None
    # Whatever else this machine does, the spinning child's own time is part of it ...
    assert beside >= 0.8 * min(used, 1.0)
    # ... and ours, as long, was not: other work and our own together cannot exceed the cores there are.
    assert alone + own <= cores() + 0.2


def busy_cpu(pid: int) -> tuple[float, float]:
    times = psutil.Process(pid).cpu_times()
    return times.user, times.system


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def test_too_short_a_while_says_nothing() -> None:
    assert Neighbours().other_cores() is None
    assert SHORTEST_S < WATCH_S
