"""What every experiment beside a run has in common: an identity, a state, a machine, and who made it when.

An experiment times one thing over a range (rows of a matrix, a batch, a length) where a run times a text. Its record
holds each point's prediction from the start, and the measurements as far as they came. Knows no torch.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.ceilings import Ceilings, DeviceFacts
from engine.errors import Sentence
from engine.judging import LeastTime, impossible, roof_of
from engine.record import RUN_ID_PATTERN, SCHEMA, FinalState, Flag, Probe

Kind = Literal["shape", "sweep", "lookup", "levers"]
State = FinalState | Literal["running"]
MOST = 10**21
"""No count of a step is larger; a record from a file with more could not even be drawn."""


class Part(BaseModel):
    """Base of everything inside a record: unknown fields of later versions are kept, not refused."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class Predicted(Part):
    """What was worked out before anything was timed, in nanoseconds.

    datasheet: None where the device is not in hardware_specs. expected: None where no such line is drawn.
    """

    datasheet: float | None
    measured_roof: float
    expected: float | None = None


class Timed(Part):
    """One point: predicted first; `time_ns` and what follows it are None or 0 until it was measured.

    spread: half the interquartile range of the samples over their median. working_set_bytes: what is read over and
    over, which says at what bandwidth; 0 where that is what is moved.
    """

    flops: int = Field(ge=0, le=MOST)
    moved_bytes: int = Field(ge=0, le=MOST)
    working_set_bytes: int = Field(default=0, ge=0, le=MOST)
    predicted_ns: Predicted
    time_ns: float | None = Field(default=None, gt=0)
    spread: float = Field(default=0.0, ge=0, le=1e6)
    samples: int = Field(default=0, ge=0, le=MOST)
    flags: list[Flag] = []

    @property
    def intensity(self) -> float:
        """FLOPs for each byte moved."""
        return self.flops / self.moved_bytes

    @property
    def flops_per_s(self) -> float | None:
        """The rate measured; None before."""
        return None if self.time_ns is None else self.flops / (self.time_ns * 1e-9)


class Experiment(Part):
    """The part of a record that all kinds share. `state` is "running" only until the engine has ended it."""

    schema_: Literal[1] = Field(SCHEMA, alias="schema")
    id: str = Field(pattern=RUN_ID_PATTERN)
    state: State
    created_at: str
    package_version: str
    device: DeviceFacts | None = None
    ceilings: Ceilings | None = None
    probe: Probe | None = None
    error: Sentence | None = None
    notes: list[Sentence] = []

    model_config = ConfigDict(extra="allow", populate_by_name=True, protected_namespaces=())

    def to_json(self) -> str:
        """The record as the lab's public JSON document."""
        return self.model_dump_json(by_alias=True)


def flags(point: Timed, ceilings: Ceilings | None, multiplication: str) -> list[Flag]:
    """What is impossible about a point's time, from its own FLOPs and bytes; without ceilings, from its roof as said.

    multiplication: what was computed in, as `Formats.multiplication` names it.
    """
    if point.time_ns is None:
        return []
    roof = LeastTime(point.predicted_ns.measured_roof, 0.0)
    if ceilings is not None:
        roof = roof_of(ceilings, multiplication, point.flops, point.moved_bytes, point.working_set_bytes)
    return impossible(point.time_ns, roof, point.predicted_ns.datasheet)


def general(ceilings: Ceilings) -> Ceilings:
    """Ceilings without any model's own points: all that the roof of one matrix rests on."""
    return ceilings.model_copy(update={"linear": [], "small_ops": []})
