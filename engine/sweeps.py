"""One model stepped over a growing batch, prompt or context: what is asked, and what was found. Knows no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.errors import N_, LabError
from engine.experiment import MOST, Experiment, Part, Timed
from engine.measured_points import MeasuredPoint
from engine.record import ModelFacts, Phase, RunRequest, StepBytes
from engine.request import MAX_BATCH
from engine.request import check as check_run

Axis = Literal["batch", "prompt", "context"]
MOST_VALUES = 32
MOST_POSITIONS = 1 << 20
LIMITS: dict[Axis, int] = {"batch": MAX_BATCH, "prompt": 1 << 17, "context": MOST_POSITIONS}
FEWEST: dict[Axis, int] = {"context": 2}
"""A decode step attends what was there before and its own position."""
USUAL: dict[Axis, tuple[int, ...]] = {
    "batch": (1, 2, 4, 8, 16, 32, 64, 128, 256),
    "prompt": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
    "context": (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768),
}
FIRST: dict[Axis, int] = {"batch": 64, "prompt": 1024, "context": 4096}
"""Where a sweep ends if nobody says: what takes half a minute for the demo model on two cores."""
WHAT: dict[Axis, str] = {
    "batch": N_("The batch"),
    "prompt": N_("The prompt length"),
    "context": N_("The context"),
}


def up_to(axis: Axis, most: int) -> list[int]:
    """The usual values of an axis, none above `most`."""
    return [value for value in USUAL[axis] if value <= most]


class SweepRequest(Part):
    """What is asked: steps of `model` over the values of one axis, everything else kept.

    batch: decode steps of as many sequences as each value says, attending `context` positions.
    prompt: prefills of one prompt of that length. context: decode steps of `batch` sequences attending that many.
    dtype, weights, kv: what is computed in, and what matrices and the KV cache are held in, as a run has them.
    """

    kind: Literal["sweep"] = "sweep"
    model: str = "smollm2-135m"
    axis: Axis = "batch"
    values: list[int] = Field(default_factory=lambda: up_to("batch", FIRST["batch"]))
    context: int = 128
    batch: int = 1
    dtype: str | None = None
    weights: str | None = None
    kv: str | None = None
    device: str | None = None


class SweepPoint(Timed):
    """One step of the sweep. tokens: rows of one sequence. context: positions attended, the new ones included."""

    value: int = Field(ge=1, le=MOST)
    phase: Phase
    batch: int = Field(ge=1, le=MOST)
    tokens: int = Field(ge=1, le=MOST)
    context: int = Field(ge=1, le=MOST)
    bytes: StepBytes
    kv_held_bytes: float = Field(default=0.0, ge=0, le=MOST)


class SweepRecord(Experiment):
    """A sweep, measured here. kv_format and weight_format of `model` say what was held in what."""

    kind: Literal["sweep"] = "sweep"
    request: SweepRequest
    model: ModelFacts | None = None
    points: list[SweepPoint] = Field(default_factory=list)


def check(request: SweepRequest) -> None:
    """Raise a LabError for the first thing that cannot be measured, whatever the model is."""
    if not request.values:
        raise LabError("No value was asked for: name at least one.")
    if len(request.values) > MOST_VALUES:
        raise LabError(
            "{count} values were asked for; at most {most} are measured.", count=len(request.values), most=MOST_VALUES
        )
    for value in request.values:
        _whole(request.axis, value)
    _whole("context", request.context)
    _whole("batch", request.batch)
    check_run(as_run(request))


def as_run(request: SweepRequest) -> RunRequest:
    """The same model in the same formats, as a run asks for them; its prompt says nothing."""
    return RunRequest(
        model=request.model,
        prompt="-",
        dtype=request.dtype,
        weights=request.weights,
        kv=request.kv,
        device=request.device,
    )


def _whole(axis: Axis, value: int) -> None:
    low, most = FEWEST.get(axis, 1), LIMITS[axis]
    if not low <= value <= most:
        raise LabError(
            "{what} is {value}; it has to be a whole number from {low} to {high}.",
            what=WHAT[axis],
            value=value,
            low=low,
            high=most,
        )


def measured_points(record: SweepRecord) -> list[MeasuredPoint]:
    """What was measured, as the prediction pages draw points of a run."""
    return [
        MeasuredPoint(
            run_id=record.id,
            device=record.device.name if record.device else "?",
            phase=point.phase,
            batch=point.batch,
            tokens=point.tokens * point.batch,
            context=point.context,
            intensity=point.intensity,
            flops_per_s=point.flops / (point.time_ns * 1e-9),
            time_s=point.time_ns * 1e-9,
            kv_held_bytes=point.kv_held_bytes,
        )
        for point in record.points
        if point.time_ns is not None
    ]
