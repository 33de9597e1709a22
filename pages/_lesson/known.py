"""What the lab has measured that a question can be held against: the run on show, this machine, its experiments."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from engine import broker, lesson_measured
from engine.ceilings import Ceilings
from engine.errors import LabError
from engine.experiment import Kind
from engine.experiment_record import AnyRecord
from engine.record import Run
from engine.shapes import ShapeRecord
from engine.sweeps import SweepRecord
from pages._parts import runs

LOOKED_AT = 20


@dataclass(frozen=True)
class Known:
    """The run on show once it has ended; this machine's ceilings; its newest timed matrix and its newest batch."""

    run: Run | None
    ceilings: Ceilings | None
    shape: ShapeRecord | None = None
    sweep: SweepRecord | None = None

    @property
    def phases(self) -> lesson_measured.TwoPhases | None:
        """The run's two phases, where it has both."""
        return lesson_measured.two_phases(self.run) if self.run is not None else None

    @property
    def matrix(self) -> lesson_measured.MatrixRatio | None:
        """Of the matrix timed on *Shapes*; else of one that this machine or the run on show was measured with."""
        timed = lesson_measured.shape_ratio(self.shape) if self.shape is not None else None
        return timed or lesson_measured.matrix_ratio(self.ceilings or (self.run.ceilings if self.run else None))

    @property
    def batch(self) -> lesson_measured.BatchGain | None:
        """Of the newest batch measured on *Live sweeps*."""
        return lesson_measured.batch_gain(self.sweep) if self.sweep is not None else None


def known(*asked: str) -> Known:
    """What these steps of the path ask about; experiments are looked for only where one of them does."""
    return Known(
        run_on_show(),
        broker.current().machine().ceilings,
        _shape() if "one-matrix" in asked else None,
        _batch() if "batch" in asked else None,
    )


def run_on_show() -> Run | None:
    """The run of the address once it has ended, else the one that ships where the address has none."""
    run_id = st.session_state.get("run_id")
    if run_id is None:
        return runs.shipped()
    try:
        run = runs.find(run_id)
    except LabError:  # the page says so itself
        return None
    return run if isinstance(run, Run) else None


def newest_run(*, other_than: str) -> Run | None:
    """The newest run that this machine made of any other model and that has both phases; else the one that ships."""
    lab = broker.current()
    try:
        for row in lab.runs(LOOKED_AT):
            if row.state == "done" and row.model != other_than and not (row.shipped or row.imported):
                run = lab.record(row.id)
                if lesson_measured.two_phases(run) is not None:
                    return run
    except LabError:  # a store that cannot be read is said elsewhere
        pass
    return runs.shipped()


def _shape() -> ShapeRecord | None:
    found = _newest("shape", None)
    return found if isinstance(found, ShapeRecord) else None


def _batch() -> SweepRecord | None:
    found = _newest("sweep", "batch")
    return found if isinstance(found, SweepRecord) else None


def _newest(kind: Kind, what: str | None) -> AnyRecord | None:
    """The newest experiment of a kind that was measured here to its end."""
    experiments = broker.current().experiments
    try:
        rows = [row for row in experiments.newest(kind, LOOKED_AT) if row.state == "done" and not row.imported]
        found = next((row for row in rows if what is None or row.what == what), None)
        return None if found is None else experiments.record(found.id)
    except LabError:  # a store that cannot be read is said elsewhere
        return None
