"""One measured step against this machine's ceilings: its two roof times, and what cannot be true of it.

Pure arithmetic over the record; no torch, no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.ceilings import Ceilings
from engine.record import Flag, Probe, Step

DISTURBED_SHARE = 0.15
"""How far the control probe may move between before and after a run before the run says it was disturbed.

Probes on a lightly used two-core virtual machine had a spread of 0.06 (25 of them) and neighbours differed by 0.06 in
the median: 0.15 is about twice what two probes differ by on their own. The tail is other work: one pair in ten moved
by 0.6 there, and around 30 runs on a busy machine half of all pairs moved by 0.10 or more.
"""
OFF_SHARE = 0.30
"""How far it may be, before the run, from where it was when the ceilings were measured, perhaps days ago; and how far
it may move over the minute of measuring them, which moved it by 0.24 on a machine that did nothing else."""
OTHER_CORES = 0.35
"""Cores' worth of others' work, on average, from which a measurement counts as disturbed. A browser that shows the run
on the same machine takes about 0.1; one busy program takes 1."""

UNSTEADY = 0.5
"""Relative spread from which a figure is called unsteady: the middle half of its samples then lies over as wide a range
as the median is large. Left alone, the same figures spread by 0.01 to 0.1."""

Disturbance = Literal["busy", "moved", "off", "others"]
"""The machine was busy when it was measured; the probe moved over the run; it was not where it was when the ceilings
were measured; others used the processor during the run."""


def bandwidth(step: Step, ceilings: Ceilings) -> float:
    """Best read bandwidth measured at the step's working set, in bytes/s."""
    return ceilings.bandwidth_at(step.working_set_bytes or step.bytes.total)


def memory_ns(step: Step, ceilings: Ceilings) -> float:
    """Time to move the step's bytes at that bandwidth."""
    return ceilings.moving_ns(step.bytes.total, step.working_set_bytes or step.bytes.total)


def compute_ns(step: Step, ceilings: Ceilings, multiplication: str) -> float:
    """Time to do the step's FLOPs at the highest rate measured here; 0 where none was measured in these formats."""
    return ceilings.computing_ns(step.flops, multiplication)


def flags(step: Step, ceilings: Ceilings | None, multiplication: str) -> list[Flag]:
    """What is impossible about a step, from its own FLOPs and bytes; without ceilings, from the line drawn over it.

    Args:
        multiplication: what it was computed in, as `Formats.multiplication` names it: "fp32", "fp32 × int8".
    """
    lines = step.predicted_ns
    if ceilings is None:
        return impossible(step.time_ns, LeastTime(lines.measured_roof, 0.0), lines.datasheet)
    roof = roof_of(ceilings, multiplication, step.flops, step.bytes.total, step.working_set_bytes)
    # A mixture's lines expect a number of experts; where the router chose fewer, less had to be read.
    share = min(1.0, roof.time_ns / lines.measured_roof)
    return impossible(step.time_ns, roof, None if lines.datasheet is None else lines.datasheet * share)


@dataclass(frozen=True, slots=True)
class LeastTime:
    """No step of these FLOPs and bytes takes less, by ceilings that were measured with this relative spread."""

    time_ns: float
    spread: float


def roof_of(
    ceilings: Ceilings, multiplication: str, flops: float, moved_bytes: float, working_set_bytes: float = 0
) -> LeastTime:
    """The roof over a step, or a product of one matrix, and the spread of the ceiling that makes it.

    Args:
        multiplication: what is computed in, as `Formats.multiplication` names it.
        working_set_bytes: what is read over and over, which says at what rate; 0 takes what is moved.
    """
    working_set_bytes = working_set_bytes or moved_bytes
    computed_ns = ceilings.computing_ns(flops, multiplication)
    moved_ns = ceilings.moving_ns(moved_bytes, working_set_bytes)
    if computed_ns > moved_ns:
        return LeastTime(computed_ns, ceilings.peak_spread_of(multiplication))
    return LeastTime(moved_ns, ceilings.bandwidth_spread_at(working_set_bytes))


def impossible(time_ns: float, roof: LeastTime, datasheet_ns: float | None) -> list[Flag]:
    """Below the measured roof beyond its own spread, below the datasheet at all.

    However unsteady a ceiling, below half of the roof no step is taken for one that the spread explains.
    """
    found: list[Flag] = []
    if time_ns < roof.time_ns * (1 - min(roof.spread, UNSTEADY)):
        found.append("beats_roof")
    if datasheet_ns is not None and time_ns < datasheet_ns:
        found.append("beats_datasheet")
    return found


def run_flags(steps: Sequence[Step], probe: Probe | None, ceilings: Ceilings | None) -> list[Flag]:
    """Every flag of the run: its steps' own, and `disturbed` when the control probe did not stay where it was."""
    found = {flag for step in steps for flag in step.flags}
    if ceilings is not None and disturbed_by(probe, ceilings):
        found.add("disturbed")
    known: tuple[Flag, ...] = ("beats_roof", "beats_datasheet", "disturbed")
    return [flag for flag in known if flag in found]


def was_busy(ceilings: Ceilings) -> bool:
    """Whether others used the machine while these ceilings were measured: then they lie too low."""
    return abs(ceilings.probe_moved) > OFF_SHARE or (ceilings.other_cores or 0.0) > OTHER_CORES


def disturbed_by(probe: Probe | None, ceilings: Ceilings) -> list[Disturbance]:
    """All that makes a run one that others disturbed; empty where it was left alone, as far as was looked."""
    found: list[Disturbance] = ["busy"] if was_busy(ceilings) else []
    if probe is None:
        return found
    if abs(probe.moved) > DISTURBED_SHARE:
        found.append("moved")
    if abs(probe_off(probe, ceilings)) > OFF_SHARE:
        found.append("off")
    if (probe.other_cores or 0.0) > OTHER_CORES:
        found.append("others")
    return found


def probe_off(probe: Probe, ceilings: Ceilings) -> float:
    """How much slower (or faster, negative) the probe was before the run than when the ceilings were measured."""
    return probe_moved(ceilings.probe_ns, probe.before_ns)


def probe_moved(before_ns: int, after_ns: int) -> float:
    """How much slower (or faster, negative) the fixed probe was after than before."""
    return after_ns / before_ns - 1 if before_ns else 0.0


def unsteady(spreads: Iterable[float]) -> float | None:
    """The largest of these relative spreads, if it is so large that the figures say little; else None."""
    largest = max(spreads, default=0.0)
    return largest if largest >= UNSTEADY else None


def ceilings_spreads(ceilings: Ceilings) -> list[float]:
    """The spread of each ceiling that a roof or a launch rests on."""
    return [*(point.spread for point in ceilings.bandwidth), ceilings.peak_spread, ceilings.launch_spread]
