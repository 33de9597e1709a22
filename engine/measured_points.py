"""The points of a measured run on a roofline: intensity by the ledger's count, rate by the clock.

One point for the prefill and one for the median decode step. Both counts and times come from the record; nothing is
predicted here.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.record import Phase, Run, Step


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """One measured step. tokens: rows of the whole batch. kv_held_bytes: the filled cache of one sequence."""

    run_id: str
    device: str
    phase: Phase
    batch: int
    tokens: int
    context: int
    intensity: float
    flops_per_s: float
    time_s: float
    kv_held_bytes: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens read or written a second, of all sequences together."""
        return self.tokens / self.time_s


@dataclass(frozen=True, slots=True)
class HeldPoint:
    """Bytes that one sequence of a run held after a step: the filled cache, the recurrent state, its convolution's."""

    context: int
    kv: float
    state: float
    conv: float


def held(run: Run, *, most: int = 80) -> list[HeldPoint]:
    """What a run held as its context grew, at no more than `most` of its steps, the last one among them."""
    every = max(1, -(-len(run.steps) // most))
    batch = run.request.batch
    found = []
    for step in reversed(run.steps[::-1][::every]):
        bytes_ = step.resident_bytes
        found.append(HeldPoint(step.context, bytes_.kv_filled / batch, bytes_.state / batch, bytes_.conv / batch))
    return found


def points(run: Run) -> list[MeasuredPoint]:
    """The prefill and the median decode step of a run; empty where it measured none."""
    decodes = sorted((step for step in run.steps if step.phase == "decode" and step.time_ns), key=lambda s: s.time_ns)
    chosen = [step for step in run.steps if step.phase == "prefill" and step.time_ns][:1]
    chosen += decodes[len(decodes) // 2 :][:1]
    return [_point(run, step) for step in chosen if step.bytes.total]


def _point(run: Run, step: Step) -> MeasuredPoint:
    return MeasuredPoint(
        run_id=run.id,
        device=run.device.name if run.device else "?",
        phase=step.phase,
        batch=run.request.batch,
        tokens=step.tokens * run.request.batch,
        context=step.context,
        intensity=step.flops / step.bytes.total,
        flops_per_s=step.flops / (step.time_ns * 1e-9),
        time_s=step.time_ns * 1e-9,
        kv_held_bytes=step.resident_bytes.kv_filled / run.request.batch,
    )
