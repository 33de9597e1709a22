"""The machine as it is now beside what it was when its ceilings were measured: how expected times are scaled by that.

A shared machine reads and multiplies up to half as fast again from one minute to the next, and one process's memory
faster than another's. The control readings (`engine.control`) are taken beside the walks that a model's points come
from, and again before and after a run's warm-up; what they take now over what they took then is all that enters here.
No step of the run, nor of any decoder, is looked at. What was scaled by how much, and the readings themselves, are in
the run's record (`record.Probe`).

A moment does not tell all of the next. What the readings do not agree on has passed already; and by how much one
differed from the next while the model was measured says what of the rest is chance. Where that is half of a reading or
more, or unknown, they are no measure, and nothing is scaled.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine.ceilings import Ceilings, ControlRates
from engine.judging import UNSTEADY


@dataclass(frozen=True, slots=True)
class Present:
    """How many times as long reading and multiplying take now as when the ceilings were measured.

    seen: the readings that say so, in order.
    """

    reading: float = 1.0
    multiplying: float = 1.0
    seen: tuple[ControlRates, ...] = ()

    def scale(self, memory_ns: float, compute_ns: float) -> float:
        """What to multiply a step's expected time by, of which reading and multiplying would take these parts alone.

        The geometric mean of both ratios, weighed by those parts: a step that reads for as long as it multiplies is
        slowed by both alike.
        """
        whole_ns = memory_ns + compute_ns
        share = compute_ns / whole_ns if whole_ns else 0.0
        return float(self.reading ** (1 - share) * self.multiplying**share)


AS_MEASURED = Present()
QUARTILE = 0.6745
"""The median size of a normal variable, in standard deviations."""
FEWEST = 3
"""Readings from which on it is known how far they differ."""


def present(ceilings: Ceilings, dtype: str, weight_bytes: int, now: Sequence[ControlRates]) -> Present:
    """The machine as the control readings find it now; as it was measured, where there are none now or none from then.

    Args:
        dtype, weight_bytes: what tells one model's points from another's (`calibrate_model.weight_bytes`).
        now: readings at moments some time apart.
    """
    then = [p for p in ceilings.controls if (p.dtype, p.working_set_bytes) == (dtype, weight_bytes)]
    if not now or not then or max(then[0].read_chance, then[0].multiplied_chance) >= UNSTEADY:
        return AS_MEASURED
    was = then[0]
    reading = agreed([was.read_bytes_per_s / each.read_bytes_per_s for each in now])
    multiplying = agreed([was.multiplied_flops_per_s / each.multiplied_flops_per_s for each in now])
    return Present(
        reading=beyond_chance(reading, was.read_chance),
        multiplying=beyond_chance(multiplying, was.multiplied_chance),
        seen=tuple(now),
    )


def agreed(ratios: Sequence[float]) -> float:
    """The ratio nearest to 1, where all lie on one side of it; else 1: a slow moment that is over slows nothing."""
    low, high = min(ratios), max(ratios)
    return low if low > 1 else high if high < 1 else 1.0


def chance(times: Sequence[float]) -> float:
    """By how much one reading differs from the next for no lasting reason: the standard deviation of its logarithm.

    From successive differences, which a drift hardly enters (von Neumann, 1941), and of those the median, which a few
    sudden changes do not enter either. UNSTEADY where there are too few to tell.
    """
    steps = [abs(math.log(later / earlier)) for earlier, later in pairwise(times)]
    return statistics.median(steps) / (math.sqrt(2) * QUARTILE) if len(times) >= FEWEST else UNSTEADY


def beyond_chance(ratio: float, deviation: float) -> float:
    """What is to be believed of a ratio between one reading and the median of many.

    Its logarithm x is multiplied by (x^2 - s^2) / x^2, or 0 where that is negative, s being what `chance` says of the
    readings: Wiener's filter, with the signal's power taken from the one reading there is (power subtraction; Lim and
    Oppenheim, Proceedings of the IEEE 67, 1979). Readings that hardly differ leave the ratio as it is.
    """
    x = math.log(ratio)
    return math.exp(x * max(0.0, 1 - (deviation / x) ** 2)) if x else 1.0
