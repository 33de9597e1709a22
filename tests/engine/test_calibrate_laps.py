"""The stopwatch: every nanosecond between start and the last lap belongs to exactly one op."""

from __future__ import annotations

import time

from engine.laps import HostLaps, OpKey

SLOW, QUICK = OpKey("slow", 1), OpKey("quick", 1)


def test_laps_add_up_to_the_time_between_start_and_the_last_lap() -> None:
    laps = HostLaps()
    before = time.perf_counter_ns()
    laps.start()
    for _ in range(2):
        time.sleep(0.02)
        laps.lap(SLOW)
        laps.lap(QUICK)
    ended = time.perf_counter_ns()
    after = laps.totals()
    total = sum(time_ns for time_ns, _ in after.values())
    # What was waited for lies in the slow laps alone, and no time is counted twice.
    assert total <= ended - before
    assert after[SLOW][0] >= 2 * 0.02e9
    assert after[SLOW][0] + after[QUICK][0] == total
    assert (after[SLOW][1], after[QUICK][1]) == (2, 2)


def test_a_new_start_forgets() -> None:
    laps = HostLaps()
    laps.start()
    laps.lap(SLOW)
    laps.start()
    laps.lap(QUICK)
    assert set(laps.totals()) == {QUICK}
