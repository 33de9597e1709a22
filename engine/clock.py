"""The right clock for each kind of device: how long one piece of work took, on the device and on the host.

Work on an accelerator is only queued when the call returns, so a host clock without a synchronise
measures the queueing; work on a CPU is finished when the call returns. Every clock here first waits
for earlier work, so that nothing from before the call is charged to it.

| device | time_ns | host_ns |
|---|---|---|
| cpu | `perf_counter_ns` around the call | the same |
| cuda | between two events on the current stream | `perf_counter_ns` around call and wait |
| mps, xpu | `perf_counter_ns` around call and `synchronize` | the same |

Sources: "Asynchronous execution" in PyTorch's CUDA semantics notes, and the reference pages of
`torch.cuda.Event`, `torch.mps.synchronize` and `torch.xpu.synchronize`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from time import perf_counter_ns
from typing import Protocol, TypeVar

import torch

from engine.errors import LabError

Result = TypeVar("Result")


class Clock(Protocol):
    """Times one callable."""

    def time(self, work: Callable[[], Result]) -> tuple[Result, int, int]:
        """Do `work` once; return its result, its time on the device and its time on the host, in ns."""
        ...


class CpuClock:
    """CPU work is done when the call returns; one host clock is the whole truth."""

    def time(self, work: Callable[[], Result]) -> tuple[Result, int, int]:
        """As `Clock.time`; both times are the same number."""
        started = perf_counter_ns()
        result = work()
        elapsed = perf_counter_ns() - started
        return result, elapsed, elapsed


class SynchronisingClock:
    """For devices whose work is queued: the host clock, with a wait for the device before and after."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize

    def time(self, work: Callable[[], Result]) -> tuple[Result, int, int]:
        """As `Clock.time`; both times are the same number and include the wait for the device."""
        self._synchronize()
        started = perf_counter_ns()
        result = work()
        self._synchronize()
        elapsed = perf_counter_ns() - started
        return result, elapsed, elapsed


class CudaClock:
    """CUDA events for the device's time, and a host clock around the same work.

    Both events are recorded on the stream the work runs on, on this device even if another one is
    current (an event belongs to the device it is first recorded on). Waiting for the second event,
    and not for the whole device, is what the work itself needs.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        with torch.cuda.device(device):
            self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def time(self, work: Callable[[], Result]) -> tuple[Result, int, int]:
        """As `Clock.time`; device time comes from the events, whose resolution is about 0.5 us."""
        with torch.cuda.device(self._device):
            stream = torch.cuda.current_stream()
            torch.cuda.synchronize()
            started = perf_counter_ns()
            self._start.record(stream)
            result = work()
            self._end.record(stream)
            self._end.synchronize()
            host_ns = perf_counter_ns() - started
        return result, round(self._start.elapsed_time(self._end) * 1e6), host_ns


class CpuMarks:
    """Moments of work that is done when the call returns."""

    def __init__(self) -> None:
        self._times: list[int] = []

    def mark(self) -> None:
        """Note this moment."""
        self._times.append(perf_counter_ns())

    def gaps_ns(self) -> list[int]:
        """The time between each mark and the next."""
        return [later - earlier for earlier, later in pairwise(self._times)]


class CudaMarks:
    """Moments in the device's queue: events between the kernels, which nobody waits for until all is queued.

    Synchronised steps (`CudaClock`) include the device's idle time until the host has seen the end of one and begun the
    next; between marks there is none as long as the host is ahead.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._events: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """Note the moment at which the device has done what was queued until now."""
        with torch.cuda.device(self._device):
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream())
        self._events.append(event)

    def gaps_ns(self) -> list[int]:
        """Wait for the last mark; the device's time between each mark and the next."""
        self._events[-1].synchronize()
        return [round(earlier.elapsed_time(later) * 1e6) for earlier, later in pairwise(self._events)]


def marks_for(device: str | torch.device) -> CpuMarks | CudaMarks:
    """Marks for work that runs freely on a device.

    Raises:
        LabError: the lab has none for this kind of device.
    """
    found = torch.device(device)
    if found.type == "cpu":
        return CpuMarks()
    if found.type == "cuda":
        return CudaMarks(found)
    raise LabError("Steps can run freely on cpu and cuda; on {device} each is waited for.", device=str(device))


def clock_for(device: str | torch.device) -> Clock:
    """The clock of a device.

    Raises:
        LabError: the lab has no clock for this kind of device.
    """
    found = torch.device(device)
    if found.type == "cpu":
        return CpuClock()
    if found.type == "cuda":
        return CudaClock(found)
    if found.type == "mps":
        return SynchronisingClock(torch.mps.synchronize)
    if found.type == "xpu":
        return SynchronisingClock(lambda: torch.xpu.synchronize(found))
    raise LabError("The lab cannot time the device {device}; it can time cpu, cuda, mps and xpu.", device=str(device))
