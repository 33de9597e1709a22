"""The queue in front of the engine: who runs next, how far a run is, and what became of it.

Lives in the web process (or the command line's), imports no torch, and gives one job at a time to the
worker that its supervisor keeps alive. What a page shows of a run that is not in the store yet comes
from here. All methods may be called from any thread; those that block say so.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import Callable
from functools import lru_cache

from engine import checkpoint
from engine.ceilings import Ceilings
from engine.desk import Desk
from engine.errors import LabError, Sentence
from engine.experiments import Experiments
from engine.history import History
from engine.live import LiveRun, events_of
from engine.record import Run, RunRequest, RunView, new_run_id, now
from engine.request import check, check_kv, check_latent, choose_dtype
from engine.store import RunRow, Store, open_store
from engine.supervisor import Limits, Supervisor
from engine.tasks import MachineView, Task, TaskView

STOP_SAVING_S = 0.5
STORED_RUNS = 16


class Broker:
    """One worker, and the queue of those who want it."""

    def __init__(
        self,
        store: Store,
        *,
        allow_paths: bool = False,
        start_worker: bool = True,
        limits: Limits | None = None,
    ) -> None:
        """
        Args:
            store: where finished runs and ceilings go.
            allow_paths: whether a model may be named by a path (the command line) or by id alone (the web).
            start_worker: start the engine's process with `start`; else with the first job.
        """
        self._store = store
        self._allow_paths = allow_paths
        self._history = History()
        self._desk = Desk(store, allow_paths=allow_paths)
        self._supervisor = Supervisor(self._desk, eager=start_worker, limits=limits)
        self.experiments = Experiments(
            store,
            self._desk,
            require_engine=self._require_engine,
            wake=self._supervisor.wake,
            allow_paths=allow_paths,
        )
        # A stored run never changes, so whoever reads it again may have what was read before.
        self._stored = lru_cache(maxsize=STORED_RUNS)(self._read)
        self._stored_events = lru_cache(maxsize=STORED_RUNS)(self._read_events)

    def start(self) -> None:
        """Start the worker (it warms up meanwhile) and the writing of records."""
        self._desk.start()
        self._supervisor.start()

    def stop(self) -> None:
        """End the worker; it is gone within 2 s. A run that had not ended is kept as failed."""
        self._supervisor.stop()
        self._desk.stop(STOP_SAVING_S)

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    # ---- runs ------------------------------------------------------------------------------------

    def submit(self, request: RunRequest, owner: str) -> str:
        """Queue a run for `owner` and return its id.

        Raises:
            LabError: the request cannot be run, the owner has a run already, the queue is full, or no engine is there.
        """
        check(request)
        source = checkpoint.require(request.model, allow_paths=self._allow_paths)
        if source is not None:
            check_latent(request.latent, source.id, source.spec)
            checkpoint.check_prompt(source, request.prompt, chat=request.chat)
            dtype = choose_dtype(request, source.spec.dtype)
            check_kv(request.kv, source.id, source.spec, dtype=dtype)  # which devices are there, only the engine knows
        self._require_engine()
        run = LiveRun(new_run_id(), owner, request, now())
        self._desk.take_in_run(run)
        self._history.add(run)
        self._supervisor.wake()
        return run.id

    def cancel(self, run_id: str, owner: str) -> None:
        """End a run (or a calibration, or a fetch) that waits or runs; one that has ended stays as it is.

        Raises:
            LabError: no such job waits or runs, or it is another owner's.
        """
        live = self._history.get(run_id)
        if live is not None and live.ended:
            return
        if not self._desk.cancel_waiting(run_id, owner):
            self._supervisor.cancel(run_id)

    def active_run(self, owner: str) -> str | None:
        """The run that `owner` has queued or running, if any; only that owner can cancel it."""
        return self._desk.active_run(owner)

    def keep(self, run: Run) -> None:
        """Store a run that was read from a file.

        Raises:
            LabError: the store cannot be written, or holds another run under this id.
        """
        self._store.put(run)

    def snapshot(self, run_id: str, since: int = 0) -> RunView:
        """How a run stands, with its steps from number `since` on; finished runs come from the store.

        Raises:
            LabError: there is no such run, or the store cannot be read.
        """
        live = self._history.get(run_id)
        return live.view(since) if live is not None else _view_of(self._stored(run_id), since)

    def record(self, run_id: str) -> Run:
        """The record of a run that has ended.

        Raises:
            LabError: there is no such run, it has not ended, or the store cannot be read.
        """
        live = self._history.get(run_id)
        if live is None:
            return self._stored(run_id)
        if live.record is None:
            raise LabError("Run {id} has not ended yet; its record is written when it does.", id=run_id)
        return live.record

    def runs(self, limit: int, model: str | None = None) -> list[RunRow]:
        """The newest runs, of one model or of all, those that ship with the lab last.

        Raises:
            LabError: the store cannot be read.
        """
        return self._store.list(limit, model)

    def wait_for(self, run_id: str, timeout_s: float) -> Run:
        """The record of a run once it has ended; blocks.

        Raises:
            LabError: there is no such run, or it takes longer than `timeout_s`.
        """
        deadline, seen = time.monotonic() + timeout_s, 0
        live = self._history.get(run_id)
        while live is not None and not live.ended:
            left = deadline - time.monotonic()
            if left <= 0:
                raise LabError("Run {id} did not end within {limit} s.", id=run_id, limit=f"{timeout_s:.0f}")
            seen += len(live.wait(seen, left))
        return self.record(run_id)

    # ---- events: see engine.live for what they say -----------------------------------------------

    def events(self, run_id: str, since: int = 0) -> list[str]:
        """The run's events after the first `since`, each a JSON object; made once for all viewers.

        Raises:
            LabError: there is no such run, or the store cannot be read.
        """
        live = self._history.get(run_id)
        return live.events(since) if live is not None else self._stored_events(run_id)[since:]

    def wait(self, run_id: str, since: int, timeout_s: float) -> list[str]:
        """The same, but waits up to `timeout_s` for the first of them; blocks."""
        live = self._history.get(run_id)
        return live.wait(since, timeout_s) if live is not None else self._stored_events(run_id)[since:]

    async def wait_async(self, run_id: str, since: int, timeout_s: float) -> list[str]:
        """The same without blocking the event loop; hundreds may wait for one run."""
        live = self._history.get(run_id)
        if live is not None:
            return await live.wait_async(since, timeout_s)
        events = await asyncio.to_thread(self._stored_events, run_id)
        return events[since:]

    def _read_events(self, run_id: str) -> list[str]:
        return events_of(self._stored(run_id))

    def _read(self, run_id: str) -> Run:
        run = self._store.get(run_id)
        if run is None:
            raise LabError(
                "There is no run {id} here: the link is incomplete, or belongs to another lab.", id=run_id[:40]
            )
        return run

    # ---- the machine, calibrations and fetches ---------------------------------------------------

    def machine(self) -> MachineView:
        """The worker, its device and its ceilings."""
        supervisor = self._supervisor
        return self._desk.machine_view(supervisor.state, supervisor.reason, list(supervisor.devices))

    @property
    def worker_pid(self) -> int | None:
        """The process id of the engine, None while there is none."""
        return self._supervisor.pid

    def calibrate(self, owner: str, device: str | None = None) -> str:
        """Queue a calibration and return its id; where one waits or runs already, that one's.

        Raises:
            LabError: the queue is full, or there is no engine.
        """
        self._require_engine()
        task = self._desk.take_in_task(Task("calibrate", owner, device=device))
        self._supervisor.wake()
        return task.id

    def fetch(self, model: str, owner: str) -> str:
        """Queue the fetch of a model and return its id; where it waits or runs already, that one's.

        Raises:
            LabError: no such model, the queue is full, or there is no engine.
        """
        checkpoint.require(model, allow_paths=self._allow_paths)
        self._require_engine()
        task = self._desk.take_in_task(Task("fetch", owner, model=model))
        self._supervisor.wake()
        return task.id

    def fetch_progress(self) -> dict[str, TaskView]:
        """The last fetch of each model, by model id."""
        return {task.model: task for task in self._desk.task_views("fetch") if task.model is not None}

    def calibrate_and_wait(
        self, owner: str, *, device: str | None = None, progress: Callable[[Sentence, float | None], None]
    ) -> Ceilings:
        """Calibrate, telling `progress` how far it is; blocks.

        Raises:
            LabError: it failed, or was cancelled.
        """
        task = self._desk.task(self.calibrate(owner, device))
        while not (view := task.wait(1.0)).ended:
            if view.progress is not None:
                progress(view.progress.sentence, view.progress.fraction)
        if view.error is not None:
            raise LabError.from_sentence(view.error)
        if task.ceilings is None:
            raise LabError("The calibration was cancelled; nothing was changed.")
        return task.ceilings

    def _require_engine(self) -> None:
        if self._supervisor.state == "unusable" and self._supervisor.reason is not None:
            raise LabError.from_sentence(self._supervisor.reason)


def _view_of(run: Run, since: int) -> RunView:
    return RunView(
        id=run.id,
        state=run.state,
        request=run.request,
        prompt=run.prompt,
        steps=run.steps[since:],
        steps_so_far=len(run.steps),
        error=run.error,
    )


# ---- the process's own ---------------------------------------------------------------------------

_current: Broker | None = None
_current_lock = threading.Lock()


def start(store: Store | None = None, *, start_worker: bool = True) -> Broker:
    """Start this process's broker, if it has none yet, and return it."""
    global _current
    with _current_lock:
        if _current is None:
            _current = Broker(store or open_store(), start_worker=start_worker)
            _current.start()
            atexit.register(stop)
        return _current


def current() -> Broker:
    """This process's broker; where nobody started one, one whose worker waits for the first job."""
    return start(start_worker=False)


def stop() -> None:
    """Stop this process's broker, if it has one."""
    global _current
    with _current_lock:
        if _current is not None:
            _current.stop()
            _current = None
            atexit.unregister(stop)
