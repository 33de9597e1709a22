"""What is to be doubted in a measured number, by the lab's own judgement, and how that is said where it stands."""

from __future__ import annotations

from typing import Literal

from engine import lesson_measured
from engine.judging import run_flags, unsteady
from engine.record import Run
from engine.shapes import ShapeRecord
from engine.sweeps import SweepRecord
from pages._lesson.known import Known
from pages._parts.doubts import Doubt, of_ceilings
from pages._parts.words import Words


def of_run(run: Run | None) -> Doubt | None:
    """Of a run's own times."""
    return "disturbed" if run is not None and "disturbed" in run_flags([], run.probe, run.ceilings) else None


def of_lines(run: Run | None) -> Doubt | None:
    """Of what was predicted for a run from ceilings of its machine."""
    return of_ceilings(run.ceilings) if run is not None else None


def of_experiment(record: ShapeRecord | SweepRecord | None) -> Doubt | None:
    """Of a timed matrix or a sweep."""
    if record is None:
        return None
    if run_flags([], record.probe, record.ceilings):
        return "disturbed"
    return "unsteady" if unsteady(point.spread for point in record.points) is not None else None


def of_matrix(known: Known) -> Doubt | None:
    """Of the matrix that a question is held against, wherever it was timed."""
    if known.shape is not None and lesson_measured.shape_ratio(known.shape) is not None:
        return of_experiment(known.shape)
    return of_ceilings(known.ceilings or (known.run.ceilings if known.run else None))


def note(t: Words, kind: Literal["predicted", "measured"], doubt: Doubt | None) -> str:
    """A few words for the place where the number stands; empty where nothing is to be doubted."""
    if doubt is None:
        return ""
    if kind == "predicted":
        return t("predicted from a disturbed measurement") if doubt == "disturbed" else t("predicted, unsure")
    return t("measured, disturbed") if doubt == "disturbed" else t("measured, unsteady")
