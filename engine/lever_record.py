"""A forecast as it is kept: what each lever of a run is predicted to give. Data, and what it has to agree with."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from engine import request
from engine.errors import LabError, Sentence
from engine.experiment import MOST, Experiment, Part, Timed
from engine.lookup import MOST_DRAFTS
from engine.record import RunRequest

Kind = Literal["weights", "kv", "batch", "context", "lookup", "device", "mixture", "hybrid"]
PULLED: tuple[Kind, ...] = ("weights", "kv", "batch", "context", "lookup")
"""Those that change the run itself: their gain is over the run's own prediction."""


class Foretold(Part):
    """A decode step and the tokens a second of all sequences, predicted."""

    step_ns: float = Field(gt=0, lt=MOST)
    tokens_per_s: float = Field(gt=0, lt=MOST)


class Lever(Part):
    """One lever. `request` is what pulls it here; None where it can only be predicted.

    gain: predicted tokens a second over the base's own prediction. drafts: tokens checked a pass, for lookup.
    """

    name: str
    kind: Kind
    what: Sentence
    rests_on: Sentence
    predicted: Foretold
    gain: float = Field(gt=0, lt=MOST)
    request: RunRequest | None = None
    drafts: int = Field(default=0, ge=0, le=MOST_DRAFTS)
    foretold_passes: int | None = Field(default=None, ge=1, le=MOST)
    foretold_acceptance: float | None = Field(default=None, ge=0, le=1)


class LeversRequest(Part):
    """The run whose levers are asked about."""

    kind: Literal["levers"] = "levers"
    model: str
    run: str
    device: str | None = None


class LeversRecord(Experiment):
    """A forecast: what each lever is predicted to give. base: the run's own step, predicted likewise."""

    kind: Literal["levers"] = "levers"
    request: LeversRequest
    base: Foretold
    base_measured: Foretold
    levers: list[Lever] = Field(default_factory=list)
    points: list[Timed] = Field(default_factory=list)


def check(record: LeversRecord) -> None:
    """Raise LabError for the first thing in a forecast from a file that no forecast says."""
    names = [lever.name for lever in record.levers]
    if len(set(names)) < len(names):
        raise LabError("The forecast names a lever twice; each is predicted once.")
    for lever in record.levers:
        gain = lever.predicted.tokens_per_s / record.base.tokens_per_s
        if lever.kind in PULLED and not math.isclose(lever.gain, gain, rel_tol=0.01):
            raise LabError(
                "The forecast says that {name} gives {said:.2f} times the tokens; its own figures give {right:.2f}.",
                name=lever.name[:40],
                said=lever.gain,
                right=gain,
            )
        if lever.request is not None:
            request.check(lever.request)
