"""The clocks: they return the work's result, time the work alone, and wait for the device they time."""

from __future__ import annotations

import time

import pytest

from engine.clock import SynchronisingClock, clock_for
from engine.errors import LabError


def test_cpu_clock_times_the_call_alone() -> None:
    clock = clock_for("cpu")
    result, time_ns, host_ns = clock.time(lambda: (time.sleep(0.02), "done")[1])
    assert result == "done"
    assert 20_000_000 <= time_ns == host_ns < 2_000_000_000


def test_synchronising_clock_waits_before_and_after() -> None:
    """The wait before belongs to earlier work and is not counted; the wait after is this work's."""
    order: list[str] = []

    def synchronize() -> None:
        order.append("wait")
        time.sleep(0.3 if len(order) == 1 else 0.02)

    _, time_ns, host_ns = SynchronisingClock(synchronize).time(lambda: order.append("work"))
    assert order == ["wait", "work", "wait"]
    assert 20_000_000 <= time_ns == host_ns < 300_000_000


@pytest.mark.parametrize("device", ["meta", "hpu"])
def test_a_device_without_a_clock_is_refused(device: str) -> None:
    with pytest.raises(LabError, match=device):
        clock_for(device)
