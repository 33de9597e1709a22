"""A stopwatch with laps: what each op of a step takes where it stands, on the host's clock or on the device's.

A lap runs from the end of one op to the end of the next, so that nothing falls between two ops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from time import perf_counter_ns
from typing import Any, Protocol

import torch


@dataclass(frozen=True, slots=True)
class OpKey:
    """What was timed: an op by its kind, the rows it saw and its size, as the ledger counts them.

    A linear maps `k` numbers a row to `n`; other ops have `width` elements a row. Attention includes the write to
    the cache, and depends on the case's batch and context and on the width of all key heads; `form` tells two ways
    of latent attention apart, and is the format of a cache that is narrower than what is computed in. Experts: how many
    `distinct` ones the rows hit together.
    """

    kind: str
    rows: int
    width: int = 0
    k: int = 0
    n: int = 0
    batch: int = 0
    context: int = 0
    kv_width: int = 0
    distinct: int = 0
    form: str = ""


class Laps(Protocol):
    """Times what lies between two calls, so that nothing falls between two ops."""

    def start(self) -> None:
        """Forget what was, and begin."""
        ...

    def lap(self, key: OpKey) -> None:
        """Everything since the last call was `key`."""
        ...

    def totals(self) -> dict[OpKey, tuple[float, int]]:
        """Nanoseconds and number of laps by key."""
        ...


class HostLaps:
    """Laps on the host's clock: the truth on a CPU, where an op is done when its call returns."""

    def __init__(self) -> None:
        self._marks: list[int] = []
        self._keys: list[OpKey] = []

    def start(self) -> None:
        """As `Laps.start`."""
        self._keys, self._marks = [], [perf_counter_ns()]

    def put(self, keys: list[OpKey], times_ns: list[int]) -> None:
        """Laps that compiled code took by itself, in place of those since `start`."""
        self._keys, self._marks = keys, [0, *accumulate(times_ns)]

    def lap(self, key: OpKey) -> None:
        """As `Laps.lap`."""
        self._marks.append(perf_counter_ns())
        self._keys.append(key)

    def totals(self) -> dict[OpKey, tuple[float, int]]:
        """As `Laps.totals`."""
        return _totals(self._keys, [end - start for start, end in pairwise(self._marks)])


class EventLaps:
    """Laps between events on the device's stream (CUDA, XPU, MPS): no wait between ops.

    Where the host is too slow to keep the device busy, a lap is the host's time, as it will be in a step.
    """

    def __init__(self, device: torch.device) -> None:
        self._new_event: Callable[[], Any] = _event_maker(device)
        self._marks: list[Any] = []
        self._keys: list[OpKey] = []

    def start(self) -> None:
        """As `Laps.start`."""
        self._keys, self._marks = [], []
        self._mark()

    def lap(self, key: OpKey) -> None:
        """As `Laps.lap`."""
        self._mark()
        self._keys.append(key)

    def totals(self) -> dict[OpKey, tuple[float, int]]:
        """As `Laps.totals`; waits for the last event."""
        self._marks[-1].synchronize()
        return _totals(self._keys, [start.elapsed_time(end) * 1e6 for start, end in pairwise(self._marks)])

    def _mark(self) -> None:
        event = self._new_event()
        event.record()
        self._marks.append(event)


def laps_for(device: torch.device) -> Laps:
    """The stopwatch of a device."""
    return HostLaps() if device.type == "cpu" else EventLaps(device)


def _totals(keys: list[OpKey], times_ns: list[float] | list[int]) -> dict[OpKey, tuple[float, int]]:
    totals: dict[OpKey, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for key, time_ns in zip(keys, times_ns, strict=True):
        so_far, count = totals[key]
        totals[key] = (so_far + time_ns, count + 1)
    return dict(totals)


def _event_maker(device: torch.device) -> Callable[[], Any]:
    if device.type == "mps":
        return lambda: torch.mps.event.Event(enable_timing=True)
    module = getattr(torch, device.type)
    return lambda: module.Event(enable_timing=True)
