"""Work for the engine that is not a run: calibration, fetch, experiment. And what a page may know of the machine."""

from __future__ import annotations

import threading
from typing import Literal

from pydantic import BaseModel, ConfigDict

from engine.ceilings import Ceilings, DeviceFacts
from engine.errors import Sentence
from engine.record import Progress, new_run_id
from engine.supervisor import WorkerState

Kind = Literal["calibrate", "fetch", "experiment"]
TaskState = Literal["queued", "running", "done", "cancelled", "failed"]


class TaskView(BaseModel):
    """A calibration, a fetch or an experiment as a page shows it."""

    id: str
    kind: Kind
    owner: str
    model: str | None
    state: TaskState
    progress: Progress | None
    error: Sentence | None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state not in ("queued", "running")


class MachineView(BaseModel):
    """The worker, its device, and what the device was measured to reach."""

    model_config = ConfigDict(frozen=True)

    worker: WorkerState
    reason: Sentence | None
    device: DeviceFacts | None
    devices: list[DeviceFacts]
    ceilings: Ceilings | None
    calibration: TaskView | None
    waiting: int
    expected_wait_s: float
    notice: Sentence | None

    @property
    def calibrating(self) -> bool:
        """Whether ceilings are being measured now, or wait to be."""
        return self.calibration is not None and not self.calibration.ended


class Task:
    """One such piece of work, from asked to ended."""

    def __init__(self, kind: Kind, owner: str, *, model: str | None = None, device: str | None = None) -> None:
        self.id = new_run_id()
        self.kind = kind
        self.owner = owner
        self.model = model
        self.device = device
        self.ceilings: Ceilings | None = None
        self._state: TaskState = "queued"
        self._progress: Progress | None = None
        self._error: Sentence | None = None
        self._changed = threading.Condition()

    def advance(self, progress: Progress | None) -> None:
        """It runs, and this is how far it has come."""
        with self._changed:
            self._state, self._progress = "running", progress
            self._changed.notify_all()

    def end(self, state: TaskState, error: Sentence | None = None) -> None:
        """It is over."""
        with self._changed:
            self._state, self._error = state, error
            self._changed.notify_all()

    def view(self) -> TaskView:
        """How it stands."""
        with self._changed:
            return TaskView(
                id=self.id,
                kind=self.kind,
                owner=self.owner,
                model=self.model,
                state=self._state,
                progress=self._progress,
                error=self._error,
            )

    def wait(self, timeout_s: float) -> TaskView:
        """How it stands after its next change, or after `timeout_s`."""
        with self._changed:
            if not self.view().ended:
                self._changed.wait(timeout_s)
            return self.view()
