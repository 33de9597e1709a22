"""What a finished run and this machine's ceilings say to the lesson's questions. Arithmetic over records; no torch.

Each answer is measured and, where the run had one before it started, predicted.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from engine.ceilings import Ceilings
from engine.record import Run, Step
from engine.shapes import ShapeRecord
from engine.sweeps import SweepRecord


@dataclass(frozen=True, slots=True)
class TwoPhases:
    """A run's prefill beside its median decode step. Times in nanoseconds."""

    prompt_tokens: int
    written_tokens: int
    prefill_ns: float
    decode_ns: float
    expected_prefill_ns: float
    expected_decode_ns: float
    roof_decode_ns: float

    @property
    def written_over_read(self) -> float:
        """Measured time of a written token over that of a read one."""
        return self.decode_ns / (self.prefill_ns / self.prompt_tokens)

    @property
    def expected_written_over_read(self) -> float:
        """The same as expected before the run."""
        return self.expected_decode_ns / (self.expected_prefill_ns / self.prompt_tokens)

    @property
    def rest_decode_ns(self) -> float:
        """What of a written token's time neither its bytes nor its arithmetic account for."""
        return max(0.0, self.decode_ns - self.roof_decode_ns)

    @property
    def passes(self) -> int:
        """Forward passes the run took: one for the prompt, one for each token but the first."""
        return self.written_tokens


def two_phases(run: Run) -> TwoPhases | None:
    """None where the run has no prefill or no decode step."""
    prefills: list[Step] = [step for step in run.steps if step.phase == "prefill"]
    decodes: list[Step] = [step for step in run.steps if step.phase == "decode"]
    if len(prefills) != 1 or not decodes or not prefills[0].time_ns:
        return None
    first = prefills[0]
    return TwoPhases(
        prompt_tokens=first.tokens,
        written_tokens=len(run.steps),
        prefill_ns=first.time_ns,
        decode_ns=statistics.median(step.time_ns for step in decodes),
        expected_prefill_ns=first.predicted_ns.expected,
        expected_decode_ns=statistics.median(step.predicted_ns.expected for step in decodes),
        roof_decode_ns=statistics.median(step.predicted_ns.measured_roof for step in decodes),
    )


@dataclass(frozen=True, slots=True)
class MatrixRatio:
    """One matrix of this machine's calibration: the time of `rows` rows over that of one."""

    k: int
    n: int
    rows: int
    ratio: float


def matrix_ratio(ceilings: Ceilings | None) -> MatrixRatio | None:
    """Of the matrix timed with most rows, the largest of them; None where there is none."""
    if ceilings is None:
        return None
    best: MatrixRatio | None = None
    shapes = {(point.k, point.n, point.dtype, point.working_set_bytes) for point in ceilings.linear}
    for shape in shapes:
        times = {
            point.rows: point.time_ns
            for point in ceilings.linear
            if (point.k, point.n, point.dtype, point.working_set_bytes) == shape
        }
        most = max(times)
        if 1 not in times or most < 4:
            continue
        k, n = shape[:2]
        if best is None or (most, k * n) > (best.rows, best.k * best.n):
            best = MatrixRatio(k, n, most, times[most] / times[1])
    return best


def shape_ratio(record: ShapeRecord) -> MatrixRatio | None:
    """Of a matrix timed on the page *Shapes*; None where not both one row and more were."""
    times = {point.rows: point.time_ns for point in record.points if point.time_ns is not None}
    most = max(times, default=1)
    if 1 not in times or most == 1:
        return None
    return MatrixRatio(record.k, record.n, most, times[most] / times[1])


@dataclass(frozen=True, slots=True)
class BatchGain:
    """Tokens a second of one sequence alone and of the largest batch of a sweep together."""

    model: str
    batch: int
    alone: float
    together: float


def batch_gain(record: SweepRecord) -> BatchGain | None:
    """Of a sweep over the batch; None where not both one sequence and more were measured."""
    rates = {
        point.batch: point.batch / point.time_ns * 1e9
        for point in record.points
        if point.phase == "decode" and point.time_ns is not None
    }
    most = max(rates, default=1)
    if record.request.axis != "batch" or 1 not in rates or most == 1:
        return None
    return BatchGain(record.request.model, most, rates[1], rates[most])
