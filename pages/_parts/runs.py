"""The run an address names, wherever it is: still going, just ended, kept in the store, or shipped with the lab."""

from __future__ import annotations

from engine import broker, recorded
from engine.ceilings import DeviceFacts
from engine.errors import LabError
from engine.imported import imported_at
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
    runs = recorded.runs()
    return max(runs.values(), key=lambda run: run.created_at) if runs else None


def elsewhere(run: Run) -> bool:
    """Whether the run was measured on another machine: it shipped with the lab, came from a file, or names one."""
    if run.id in recorded.runs() or imported_at(run) is not None:
        return True
    here = broker.current().machine().devices
    return bool(run.device and here) and not any(_same(run.device, each) for each in here)


def _same(one: DeviceFacts | None, other: DeviceFacts) -> bool:
    return one is not None and (one.kind, one.name, one.memory_bytes) == (other.kind, other.name, other.memory_bytes)


def missing() -> LabError:
    """What to say of an address whose run cannot exist."""
    return LabError("The run in this address cannot exist: a run's name has 12 letters, digits, dashes or underscores.")
