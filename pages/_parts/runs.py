"""The run an address names, wherever it is: still going, just ended, kept in the store, or shipped with the lab."""

from __future__ import annotations

from engine import broker
from engine.errors import LabError
from engine.record import Run, RunView


def find(run_id: str) -> Run | RunView:
    """The record of an ended run, else what is known of it so far.

    Raises:
        LabError: no run has this id, or the store cannot be read.
    """
    view = broker.current().snapshot(run_id, since=0)
    return broker.current().record(run_id) if view.ended else view


def shipped() -> Run | None:
    """The recorded run a first visit sees: the newest that ships with the lab, if any does."""
    from engine import recorded

    runs = recorded.runs()
    return max(runs.values(), key=lambda run: run.created_at) if runs else None


def imported(run: Run) -> bool:
    """Whether the run came from a file, so that nothing of it was measured here."""
    from engine.record_io import imported_at

    return imported_at(run) is not None


def missing() -> LabError:
    """What to say of an address whose run cannot exist."""
    return LabError("The run in this address cannot exist: a run's name has 12 letters, digits, dashes or underscores.")
