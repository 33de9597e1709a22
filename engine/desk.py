"""What is asked of the engine, in the order it will be done, and what comes back: the broker's books.

Holds the queue, decides who is next, and turns the worker's events into live runs and saved records.
Called by the broker from any thread and by the supervisor from its own; one lock guards the books.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque

from engine.ceilings import Ceilings, DeviceFacts
from engine.errors import N_, LabError, Sentence
from engine.experiment_record import AnyRecord
from engine.experiment_task import ExperimentTask
from engine.known_ceilings import KnownCeilings, named
from engine.live import LiveRun
from engine.protocol import (
    Advanced,
    Calibrated,
    CalibrateJob,
    Event,
    FetchJob,
    Finished,
    Job,
    Prompted,
    Recorded,
    RunJob,
    Stepped,
)
from engine.record import FinalState, Run
from engine.saving import Saver
from engine.store import Store
from engine.supervisor import WorkerState
from engine.tasks import Kind, MachineView, Task, TaskView
from engine.turns import Turns

QUEUE_LIMIT = 64
FIRST_GUESS_S = 10.0
REMEMBERED_RUNS = 20

Work = LiveRun | Task


class Desk:
    """The queue and its owners. One run an owner at a time, queued or running."""

    def __init__(self, store: Store, *, allow_paths: bool) -> None:
        self._allow_paths = allow_paths
        self._saver = Saver(store)
        self._lock = threading.RLock()
        self._turns: Turns[Work] = Turns()
        self._active: dict[str, str] = {}
        self._active_experiments: dict[str, str] = {}
        self._doing: Work | None = None
        self._began = 0.0
        self._run_seconds: deque[float] = deque(maxlen=REMEMBERED_RUNS)
        self._tasks: dict[str, Task] = {}
        self._ceilings = KnownCeilings(store)
        self._notice: Sentence | None = None

    def start(self) -> None:
        """Start writing records."""
        self._saver.start()

    def stop(self, timeout_s: float) -> None:
        """Close everything that waits, and write what is left to write."""
        self.cannot_work(Sentence(template=N_("The lab was stopped before this run began; press Run again.")))
        self._saver.stop(timeout_s)

    # ---- taken in --------------------------------------------------------------------------------

    def take_in_run(self, run: LiveRun) -> None:
        """Queue a run; LabError when its owner has one already or the queue is full."""
        with self._lock:
            self._check_free(run.owner)
            self._queue(run)
            self._active[run.owner] = run.id

    def active_run(self, owner: str) -> str | None:
        """The run this owner has queued or running, if any."""
        with self._lock:
            return self._active.get(owner)

    def take_in_experiment(self, task: ExperimentTask) -> None:
        """Queue an experiment; LabError when its owner has something going already or the queue is full."""
        with self._lock:
            self._check_free(task.owner)
            self._queue(task)
            self._active_experiments[task.owner] = task.id

    def active_experiment(self, owner: str) -> str | None:
        """The experiment this owner has queued or running, if any."""
        with self._lock:
            return self._active_experiments.get(owner)

    def _check_free(self, owner: str) -> None:
        if owner in self._active:
            raise LabError("You have a run that has not ended; wait for it or cancel it, then press Run again.")
        if owner in self._active_experiments:
            raise LabError("You have a measurement that has not ended; wait for it or cancel it, then try again.")

    def take_in_task(self, task: Task) -> Task:
        """Queue a calibration or fetch, or return the one like it that has not ended."""
        with self._lock:
            for other in self._tasks.values():
                like = (other.kind, other.model, other.device) == (task.kind, task.model, task.device)
                if like and not other.view().ended:
                    return other
            self._queue(task)
            # One task of a kind and model is remembered: its outcome is what a page shows.
            self._tasks = {key: t for key, t in self._tasks.items() if (t.kind, t.model) != (task.kind, task.model)}
            self._tasks[task.id] = task
            return task

    def _queue(self, work: Work) -> None:
        if len(self._turns) >= QUEUE_LIMIT:
            raise LabError(
                "The queue is full: {count} wait already, which takes about {minutes} min. Open a finished run "
                "meanwhile, or try again later.",
                count=len(self._turns),
                minutes=f"{max(1.0, self._wait_s(len(self._turns)) / 60):.0f}",
            )
        self._turns.put(work)
        self._tell_places()

    def cancel_waiting(self, job_id: str, owner: str) -> bool:
        """Take a job out of the queue if it waits there; False when it is being done.

        Raises:
            LabError: no such job, or another owner's.
        """
        with self._lock:
            works = [*self._turns, *([self._doing] if self._doing else [])]
            work = next((each for each in works if each.id == job_id), None)
            if work is None:
                raise LabError("There is no run {id} to cancel: it has ended, or never was.", id=job_id[:40])
            if work.owner != owner:
                raise LabError("Only the one who started a run can cancel it.")
            if work is self._doing:
                return False
            self._turns.remove(job_id)
            self._close(work, "cancelled", None)
            self._tell_places()
            return True

    # ---- the supervisor's questions (engine.supervisor.Director) ---------------------------------

    def next_job(self, devices: list[DeviceFacts]) -> Job | None:
        """Whose turn it is, as the worker needs to hear it."""
        with self._lock:
            work = self._turns.take()
            self._doing, self._began = work, time.monotonic()
            self._tell_places()
        if work is None:
            return None
        if isinstance(work, ExperimentTask):
            work.advance(None)
            return work.job(self._ceilings_for(work.device, devices), allow_paths=self._allow_paths)
        if isinstance(work, Task):
            work.advance(None)
            if work.kind == "calibrate":
                return CalibrateJob(id=work.id, device=work.device)
            return FetchJob(id=work.id, model=work.model or "")
        work.advance("loading")
        return RunJob(
            id=work.id,
            created_at=work.created_at,
            request=work.request,
            ceilings=self._ceilings_for(work.request.device, devices),
            allow_paths=self._allow_paths,
        )

    def heard(self, job: Job, event: Event) -> None:
        """One event of the job being done."""
        work = self._doing
        if work is None or work.id != job.id:
            return
        if isinstance(event, Calibrated):
            self._keep_ceilings(event.ceilings)
            if isinstance(work, Task):
                work.ceilings = event.ceilings
        elif isinstance(event, Finished):
            self._finish(work, event)
        elif isinstance(work, Task):
            if isinstance(event, Advanced):
                work.advance(event.progress)
            elif isinstance(event, Recorded) and isinstance(work, ExperimentTask):
                work.recorded(event.record)
        elif isinstance(event, Advanced):
            work.advance(event.state, event.progress)
        elif isinstance(event, Prompted):
            work.tokenized(event.prompt)
        elif isinstance(event, Stepped):
            work.extend(event.steps)

    def lost(self, job: Job, reason: Sentence | None) -> None:
        """The job being done will not finish."""
        work = self._done()
        if work is not None:
            self._close(work, "failed" if reason else "cancelled", reason)

    def cannot_work(self, reason: Sentence) -> None:
        """Nothing that waits can be done."""
        with self._lock:
            while (work := self._turns.take()) is not None:
                self._close(work, "failed", reason)

    # ---- ends ------------------------------------------------------------------------------------

    def _finish(self, work: Work, event: Finished) -> None:
        seconds = time.monotonic() - self._began
        self._done()
        if isinstance(work, ExperimentTask):
            record = event.record
            self._keep(work, record if record is not None else work.closed("failed", event.error))
        elif isinstance(work, Task):
            work.end("failed" if event.error else "cancelled" if event.cancelled else "done", event.error)
        elif event.run is not None:
            if event.run.state == "done":
                self._run_seconds.append(seconds)
            self._save(work, event.run)
        else:
            self._close(work, "failed", event.error)

    def _done(self) -> Work | None:
        with self._lock:
            work, self._doing = self._doing, None
            return work

    def _close(self, work: Work, state: FinalState, error: Sentence | None) -> None:
        """End what has no record of its own, with one made of what is known."""
        if isinstance(work, ExperimentTask):
            self._keep(work, work.closed(state, error))
            return
        if isinstance(work, Task):
            work.end(state, error)
            return
        self._save(work, work.closed(state, error))

    def _save(self, run: LiveRun, record: Run) -> None:
        def saved(trouble: Sentence | None) -> None:
            self._notice = trouble
            if run.ended:  # a later try worked
                run.notice = trouble
                return
            with self._lock:
                if self._active.get(run.owner) == run.id:
                    del self._active[run.owner]
            run.end(record, trouble)

        self._saver.save(record, saved)

    def _keep(self, task: ExperimentTask, record: AnyRecord) -> None:
        def saved(trouble: Sentence | None) -> None:
            self._notice = trouble
            with self._lock:
                if self._active_experiments.get(task.owner) == task.id:
                    del self._active_experiments[task.owner]
            task.kept(record, trouble)

        self._saver.save(record, saved)

    # ---- waiting ---------------------------------------------------------------------------------

    def _tell_places(self) -> None:
        for place, work in enumerate(self._turns, start=1):
            if isinstance(work, LiveRun):
                work.wait_at(place, self._wait_s(place - 1))

    def _wait_s(self, ahead: int) -> float:
        usual = statistics.median(self._run_seconds) if self._run_seconds else FIRST_GUESS_S
        left = max(0.0, usual - (time.monotonic() - self._began)) if self._doing else 0.0
        if isinstance(self._doing, LiveRun) and self._doing.steps:  # they say more than what was usual
            left = self._doing.steps_left_s()
        return left + ahead * usual

    # ---- ceilings and tasks ----------------------------------------------------------------------

    def _ceilings_for(self, device: str | None, devices: list[DeviceFacts]) -> Ceilings | None:
        facts = named(device, devices)
        try:
            return self._ceilings.of(facts) if facts else None
        except LabError as error:
            self._notice = error.sentence
            return None

    def _keep_ceilings(self, ceilings: Ceilings) -> None:
        self._ceilings.keep(ceilings)

        def saved(trouble: Sentence | None) -> None:
            self._notice = trouble

        self._saver.save(ceilings, saved)

    def task(self, task_id: str) -> Task:
        """The task with this id."""
        return self._tasks[task_id]

    def task_views(self, kind: Kind) -> list[TaskView]:
        """How the last tasks of a kind stand."""
        return [task.view() for task in self._tasks.values() if task.kind == kind]

    def machine_view(self, worker: WorkerState, reason: Sentence | None, devices: list[DeviceFacts]) -> MachineView:
        """The machine as a page shows it."""
        calibrations = self.task_views("calibrate")
        with self._lock:
            waiting, wait_s = len(self._turns), self._wait_s(len(self._turns))
        return MachineView(
            worker=worker,
            reason=reason,
            device=devices[0] if devices else None,
            devices=devices,
            ceilings=self._ceilings.shown_of(devices[0]) if devices else None,
            calibration=calibrations[-1] if calibrations else None,
            waiting=waiting,
            expected_wait_s=wait_s,
            notice=self._notice,
        )
