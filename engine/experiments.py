"""The broker's part for experiments: ask for one, watch it, find it again, take one in from a file."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

from engine import catalogue, checkpoint, lookups, matrices, shapes, sweeps
from engine.desk import Desk
from engine.errors import LabError
from engine.experiment import Kind
from engine.experiment_record import AnyRecord, AnyRequest
from engine.experiment_row import ExperimentRow
from engine.experiment_task import ExperimentTask, ExperimentView
from engine.shapes import ShapeRequest
from engine.store import Store
from engine.sweeps import SweepRequest

KEPT = 32


class Experiments:
    """Those being made, the last that ended, and those in the store. All methods may be called from any thread."""

    def __init__(
        self,
        store: Store,
        desk: Desk,
        *,
        require_engine: Callable[[], None],
        wake: Callable[[], None],
        allow_paths: bool,
    ) -> None:
        self._store = store
        self._desk = desk
        self._require_engine = require_engine
        self._wake = wake
        self._allow_paths = allow_paths
        self._tasks: OrderedDict[str, ExperimentTask] = OrderedDict()
        self._lock = threading.Lock()
        # A kept record never changes, so whoever reads it again may have what was read before.
        self._stored = lru_cache(maxsize=KEPT)(self._read)

    def submit(self, request: AnyRequest, owner: str) -> str:
        """Queue an experiment for `owner` and return its id.

        Raises:
            LabError: it cannot be measured, the owner has something going already, the queue is full, or no engine.
        """
        self._check(request)
        self._require_engine()
        task = ExperimentTask(owner, request)
        self._desk.take_in_experiment(task)
        with self._lock:
            self._tasks[task.id] = task
            ended = [each.id for each in self._tasks.values() if each.view().ended]
            for old in ended[:-KEPT]:
                del self._tasks[old]
        self._wake()
        return task.id

    def active(self, owner: str) -> str | None:
        """The experiment that `owner` has queued or running, if any."""
        return self._desk.active_experiment(owner)

    def view(self, experiment_id: str) -> ExperimentView:
        """How an experiment stands; those that ended come from the store.

        Raises:
            LabError: there is none of that id, or the store cannot be read.
        """
        task = self._tasks.get(experiment_id)
        if task is not None:
            return task.experiment_view()
        record = self._stored(experiment_id)
        state = "done" if record.state == "running" else record.state
        return ExperimentView(id=record.id, owner=None, state=state, record=record)

    def record(self, experiment_id: str) -> AnyRecord:
        """The record of an experiment that has ended.

        Raises:
            LabError: there is none of that id, it has not ended, or the store cannot be read.
        """
        view = self.view(experiment_id)
        if not view.ended or view.record is None:
            raise LabError("Experiment {id} has not ended yet; its record is written when it does.", id=experiment_id)
        return view.record

    def wait_for(self, experiment_id: str, timeout_s: float) -> AnyRecord:
        """The record of an experiment once it has ended; blocks.

        Raises:
            LabError: there is none of that id, or it takes longer than `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while not self.view(experiment_id).ended:
            if time.monotonic() > deadline:
                raise LabError(
                    "Experiment {id} did not end within {limit} s.", id=experiment_id, limit=f"{timeout_s:.0f}"
                )
            self.wait(experiment_id, 1.0)
        return self.record(experiment_id)

    def wait(self, experiment_id: str, timeout_s: float) -> None:
        """Return after the next change of an experiment that is going on, or after `timeout_s`; blocks."""
        task = self._tasks.get(experiment_id)
        if task is not None:
            task.wait(timeout_s)

    def newest(self, kind: Kind, limit: int, model: str | None = None) -> list[ExperimentRow]:
        """The newest of a kind, of one model or of all.

        Raises:
            LabError: the store cannot be read.
        """
        return self._store.experiments(kind, limit, model)

    def keep(self, record: AnyRecord) -> None:
        """Store an experiment that was read from a file.

        Raises:
            LabError: the store cannot be written, or holds another one under this id.
        """
        self._store.put_experiment(record)

    def _read(self, experiment_id: str) -> AnyRecord:
        record = self._store.get_experiment(experiment_id)
        if record is None:
            raise LabError(
                "There is no experiment {id} here: the link is incomplete, or belongs to another lab.",
                id=experiment_id[:40],
            )
        return record

    def _check(self, request: AnyRequest) -> None:
        if isinstance(request, ShapeRequest):
            shapes.check(request)
            matrices.check_format(request.weights)
            matrices.named(catalogue.load(request.model), request.matrix)
        else:
            if isinstance(request, SweepRequest):
                sweeps.check(request)
            else:
                lookups.check(request)
            checkpoint.require(request.model, allow_paths=self._allow_paths)
