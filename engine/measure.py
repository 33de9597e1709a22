"""Timing calls in turn: the one method behind every ceiling.

Each round visits every call once, so that a slow moment of the machine falls on all of them alike and
no call is compared with another of a different minute. A sample is the mean of enough repetitions to be
well above the clock's own cost; what is kept is the median over the rounds and its spread.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from engine.errors import Sentence

Key = TypeVar("Key", bound=Hashable)
Call = Callable[[], Any]
Elapsed = Callable[[Call], int]
Progress = Callable[[Sentence, float], None]
ShouldStop = Callable[[], bool]

# One sample lasts at least this long, about 10 000 times what reading the clock costs.
SAMPLE_NS = 1_000_000
FEWEST_ROUNDS = 3


class Stopped(Exception):  # noqa: N818 - a wish of the reader, not an error
    """The measurement was called off through `should_stop`; nothing of it is kept."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Median time of one call in nanoseconds; `spread` is half the interquartile range over the median."""

    time_ns: float
    spread: float


def part(progress: Progress, template: str, start: float, end: float) -> Callable[[float], None]:
    """Say what is being measured now; returns what to call with the share done of it."""
    sentence = Sentence(template=template)
    progress(sentence, start)
    return lambda share: progress(sentence, start + share * (end - start))


def summarise(samples: Sequence[float]) -> Timing:
    """Median and relative spread of at least one sample.

    The quartiles are those of the sample itself (linear between order statistics, the "inclusive" method).
    """
    median = statistics.median(samples)
    if len(samples) < 2:
        return Timing(median, 0.0)
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Timing(median, (high - low) / 2 / median)


def trial_ns(call: Call, elapsed: Elapsed, should_stop: ShouldStop = lambda: False) -> int:
    """About how long one call takes: the shorter of two, after one that is not timed.

    Raises:
        Stopped: `should_stop` said so.
    """
    if should_stop():
        raise Stopped
    call()
    return max(1, min(elapsed(call), elapsed(call)))


def repetitions(trial: int, *, sample_ns: int = SAMPLE_NS) -> int:
    """How many calls of `trial` nanoseconds make one sample long enough."""
    return math.ceil(sample_ns / trial)


def in_turn(
    calls: Mapping[Key, Call],
    repeat: Mapping[Key, int],
    elapsed: Elapsed,
    *,
    rounds: int,
    budget_s: float = math.inf,
    on_share: Callable[[float], None] = lambda share: None,
    should_stop: ShouldStop = lambda: False,
) -> dict[Key, Timing]:
    """Time every call once a round, round after round.

    Args:
        repeat: calls per sample.
        elapsed: runs a callable and says how long it took in nanoseconds, on the device's own clock.
        budget_s: no round is begun after this time, once there are three (a busy machine: fewer samples).
        on_share: told the share of the work done after each round; 1.0 at the end.

    Raises:
        Stopped: `should_stop` said so; asked before every sample.
    """
    samples: dict[Key, list[float]] = {key: [] for key in calls}
    started = monotonic()
    for done in range(1, rounds + 1):
        for key, call in calls.items():
            if should_stop():
                raise Stopped
            if repeat[key] > 1:
                call()  # what the other calls pushed out of the caches comes back untimed
            samples[key].append(elapsed(_repeated(call, repeat[key])) / repeat[key])
        late = done >= FEWEST_ROUNDS and monotonic() - started > budget_s
        on_share(1.0 if late else done / rounds)
        if late:
            break
    return {key: summarise(values) for key, values in samples.items()}


def _repeated(call: Call, times: int) -> Call:
    if times == 1:
        return call

    def run() -> None:
        for _ in range(times):
            call()

    return run
