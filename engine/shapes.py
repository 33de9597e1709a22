"""One weight matrix multiplied with 1 to 2048 rows: what is asked, what was found, and where its time turns.

A matrix of k x n weights is read once however many rows are multiplied with it, so a few rows cost what one costs;
from the ridge on arithmetic takes longer than reading and time grows with the rows. Knows no torch and no model.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Literal

from pydantic import Field

from engine import ridge
from engine.errors import N_, LabError, Sentence
from engine.experiment import MOST, Experiment, Part, Timed

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
MOST_ROWS = 4096
MOST_POINTS = 64
FLAT = 1.25
"""Up to this many times one row's time, a time counts as still on the flat start."""


class ShapeRequest(Part):
    """What is asked: a matrix of a catalogue model by its name there, in a format, with these numbers of rows.

    matrix: a name of `engine.matrices.of`. weights: what the matrix is held in, "fp32" or "bf16" say.
    """

    kind: Literal["shape"] = "shape"
    model: str = "Qwen/Qwen3.8-27B"
    matrix: str = "mlp.up_proj"
    weights: str = "bf16"
    rows: list[int] = Field(default_factory=lambda: list(ROWS))
    device: str | None = None


class ShapePoint(Timed):
    """`rows` x [k, n]: bytes are the matrix once, the rows that come in and those that go out."""

    rows: int = Field(ge=1, le=MOST)


class ShapeRecord(Experiment):
    """One matrix, timed here. k: numbers a row that comes in; n: numbers a row that goes out.

    dtype: what was computed in. count: how often the model has this matrix. weight_bytes: what it takes.
    """

    kind: Literal["shape"] = "shape"
    request: ShapeRequest
    k: int = Field(default=1, ge=1)
    n: int = Field(default=1, ge=1)
    count: int = Field(default=1, ge=1)
    dtype: str = ""
    weight_bytes: int = Field(default=0, ge=0)
    points: list[ShapePoint] = Field(default_factory=list)


def check(request: ShapeRequest) -> None:
    """Raise a LabError for the first thing that cannot be measured, whatever the matrix is."""
    if not request.rows:
        raise LabError("No number of rows was asked for: name at least one, from 1 to {most}.", most=MOST_ROWS)
    if len(request.rows) > MOST_POINTS:
        raise LabError(
            "{count} numbers of rows were asked for; at most {most} are measured.",
            count=len(request.rows),
            most=MOST_POINTS,
        )
    for rows in request.rows:
        if not 1 <= rows <= MOST_ROWS:
            raise LabError(
                "{rows} rows were asked for; it has to be a whole number from 1 to {most}.", rows=rows, most=MOST_ROWS
            )


def curve(points: Sequence[ShapePoint]) -> list[tuple[int, float]]:
    """(rows, nanoseconds) of what was measured, by rows."""
    return sorted((point.rows, point.time_ns) for point in points if point.time_ns is not None)


def flat_until(points: Sequence[ShapePoint]) -> float | None:
    """The rows up to which time stays within a quarter of one row's, on a straight line between two points.

    None where one row was not measured, or time never leaves the flat start.
    """
    measured = curve(points)
    if not measured or measured[0][0] != 1:
        return None
    limit = FLAT * measured[0][1]
    for (low, before), (high, after) in pairwise(measured):
        if after > limit:
            return low + (high - low) * max(0.0, limit - before) / (after - before)
    return None


def knee_rows(points: Sequence[ShapePoint]) -> float | None:
    """Where the flat start and the slope meet: the flat start's time over what a row costs where rows are many.

    The flat start's time is the median of the points on it: a library may have a slow kernel for a single row. On a
    perfect roof this is the ridge in rows. None until the cost of a row has settled: as long as the most rows
    measured take less than twice one row's time there is no slope to speak of.
    """
    measured = curve(points)
    if len(measured) < 3 or measured[0][0] != 1:
        return None
    most, time_ns = measured[-1]
    limit = FLAT * measured[0][1]
    flat = statistics.median(each for _, each in takewhile(lambda point: point[1] <= limit, measured))
    if time_ns < 2 * flat:
        return None
    # The cheapest row at or beyond half of the most rows: one disturbed sample at the end must not move the knee.
    a_row = min(each / rows for rows, each in measured if rows >= most / 2)
    return flat / a_row


def missing(points: Sequence[ShapePoint]) -> list[Sentence]:
    """What would have to be measured where `flat_until` or `knee_rows` has no answer; empty before any point was."""
    measured = curve(points)
    if not measured:
        return []
    if measured[0][0] != 1:
        return [Sentence(template=N_("A single row was not measured, so there is nothing to compare with."))]
    found, most = [], measured[-1][0]
    if flat_until(points) is None:
        no_end = N_("Up to {rows} rows there is no end of the flat start: ask for more rows.")
        found.append(Sentence(template=no_end, params={"rows": most}))
    if knee_rows(points) is None:
        too_few, no_slope = (
            N_("A knee takes at least three numbers of rows."),
            N_("Up to {rows} rows the time has not doubled, so there is no slope yet: ask for more rows."),
        )
        found.append(Sentence(template=too_few if len(measured) < 3 else no_slope, params={"rows": most}))
    return found


def ridge_rows(record: ShapeRecord) -> float | None:
    """Where the predicted roof turns: the ridge in rows by this machine's ceilings at this matrix's size."""
    if record.ceilings is None or not record.weight_bytes:
        return None
    peak = record.ceilings.peak_flops_per_s.get(record.dtype)
    if not peak:
        return None
    bandwidth = record.ceilings.bandwidth_at(record.weight_bytes)
    return ridge.rows_at_ridge(peak, bandwidth, record.weight_bytes / (record.k * record.n))
