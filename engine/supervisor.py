"""Keeps one engine process at work: starts it, gives it one job at a time, ends and restarts it when it must.

One thread decides everything, fed by one inbox, so that no two decisions can cross. Knows what a job
is to the worker, and nothing of owners, queues or stores: whoever uses it says what comes next.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Literal, Protocol

from engine.ceilings import DeviceFacts
from engine.errors import N_, LabError, Sentence
from engine.protocol import Cancel, Event, Finished, Job, Ping, Ready, Unusable
from engine.worker_process import Ended, Heard, WorkerProcess

_SIGKILL = 9  # signal.SIGKILL is not there on Windows

WorkerState = Literal["off", "starting", "ready", "busy", "restarting", "unusable"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient the supervisor is, in seconds."""

    start_s: float = 180.0
    """From the start of the process to its `ready`: importing torch from a cold disk takes a while."""
    cancel_s: float = 5.0
    """From asking a job to end to killing the process."""
    silence_s: float = 20.0
    """Without a line from a busy process, until it is asked whether it lives."""
    answer_s: float = 10.0
    """For the answer."""
    backoff_s: float = 0.5
    """Before the second start in a row that failed; doubled each time."""
    longest_backoff_s: float = 30.0
    hopeless_starts: int = 3
    """So many failed starts in a row, and what waits is told instead of kept waiting."""


class Director(Protocol):
    """Who decides what is done and hears what became of it; called from the supervisor's thread."""

    def next_job(self, devices: list[DeviceFacts]) -> Job | None: ...

    def heard(self, job: Job, event: Event) -> None: ...

    def lost(self, job: Job, reason: Sentence | None) -> None:
        """The job will not finish; `reason` is None when it was asked to end."""

    def cannot_work(self, reason: Sentence) -> None:
        """The engine does not start: nothing that waits can be done."""


class Supervisor:
    """One worker process and the thread that looks after it."""

    def __init__(self, director: Director, *, eager: bool = True, limits: Limits | None = None) -> None:
        self.state: WorkerState = "off"
        self.devices: list[DeviceFacts] = []
        self.reason: Sentence | None = None
        self._director = director
        self._eager = eager
        self._limits = limits or Limits()
        self._inbox: queue.SimpleQueue[Heard | Ended | str | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._process: WorkerProcess | None = None
        self._job: Job | None = None
        self._killed_for: Sentence | Literal["cancel"] | None = None
        self._cancel_by = self._start_by = self._start_after = 0.0
        self._heard_at = 0.0
        self._pinged = False
        self._failed_starts = 0

    def start(self) -> None:
        """Start the thread, and with it the process, unless it is to wait for its first job."""
        if self._thread is None:
            # Not a daemon's short-lived helper: the worker lives exactly as long as this thread.
            self._thread = threading.Thread(target=self._work, name="supervisor", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the process and the thread; the running job is reported lost."""
        self._stopping = True
        self._inbox.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def nudge(self) -> None:
        """Say that a job may be waiting."""
        self._inbox.put(None)

    def cancel(self, job_id: str) -> None:
        """End the job with this id if it is running; by force if it does not end by itself."""
        self._inbox.put(job_id)

    @property
    def pid(self) -> int | None:
        """The worker's process id, None while there is none."""
        process = self._process
        return process.pid if process else None

    # ---- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception:
                # This thread is the engine's life: a defect in one turn must not be the end of all others.
                traceback.print_exc()
        self._shut_down()

    def _turn(self) -> None:
        """Do what can be done, then wait for one message and act on it."""
        self._start_if_needed()
        self._give_job()
        try:
            message = self._inbox.get(timeout=self._patience())
        except queue.Empty:
            message = None
        if isinstance(message, Heard):
            self._hear(message)
        elif isinstance(message, Ended):
            self._bury(message)
        elif isinstance(message, str):
            self._ask_to_end(message)
        self._check_deadlines()

    def _start_if_needed(self) -> None:
        wanted = self._eager and self.state != "unusable"
        if self._process is None and wanted and time.monotonic() >= self._start_after:
            self.state = "starting" if self._failed_starts == 0 else "restarting"
            self._start_by = time.monotonic() + self._limits.start_s
            try:
                self._process = WorkerProcess(self._inbox.put)
            except (OSError, LabError) as error:
                self._start_failed(str(error))

    def wake(self) -> None:
        """From now on keep a process running, even if the supervisor was made to wait."""
        self._eager = True
        self.start()
        self.nudge()

    def _give_job(self) -> None:
        if self.state != "ready" or self._process is None or self._killed_for is not None:
            return  # one that is about to die takes no job with it
        job = self._director.next_job(self.devices)
        if job is not None:
            self._job, self.state = job, "busy"
            self._heard_at, self._pinged, self._cancel_by = time.monotonic(), False, 0.0
            self._process.send(job)

    def _hear(self, message: Heard) -> None:
        if message.process is not self._process:
            return
        self._heard_at, self._pinged = time.monotonic(), False
        event = message.event
        if isinstance(event, Ready):
            self.devices, self.state, self.reason, self._failed_starts = event.devices, "ready", None, 0
        elif isinstance(event, Unusable):
            self.state, self.reason = "unusable", event.error
            self._director.cannot_work(event.error)
        elif self._job is not None and getattr(event, "id", None) == self._job.id:
            job = self._job
            if isinstance(event, Finished):
                self._job, self.state = None, "ready"
            self._director.heard(job, event)

    def _ask_to_end(self, job_id: str) -> None:
        if self._job is not None and self._job.id == job_id and self._process is not None and not self._cancel_by:
            self._cancel_by = time.monotonic() + self._limits.cancel_s
            self._process.send(Cancel(id=job_id))

    def _check_deadlines(self) -> None:
        if self._process is None or self._killed_for is not None:
            return
        at = time.monotonic()
        if self.state in ("starting", "restarting") and at > self._start_by:
            limit = f"{self._limits.start_s:.0f}"
            self._kill(
                Sentence(template=N_("The engine took longer than {limit} s to start."), params={"limit": limit})
            )
        if self._job is None:
            return
        if self._cancel_by and at > self._cancel_by:
            self._kill("cancel")
        elif at > self._heard_at + self._limits.silence_s:
            if not self._pinged:
                self._pinged = True
                self._process.send(Ping())
            elif at > self._heard_at + self._limits.silence_s + self._limits.answer_s:
                self._kill(Sentence(template=N_("The engine stopped answering and was restarted; press Run again.")))

    def _kill(self, reason: Sentence | Literal["cancel"]) -> None:
        assert self._process is not None
        self._killed_for = reason
        self._process.kill()

    def _bury(self, message: Ended) -> None:
        if message.process is not self._process:
            return
        was, job, killed_for = self.state, self._job, self._killed_for
        self._process = self._job = self._killed_for = None
        if was == "unusable":
            return
        self.state = "restarting"
        reason = cause_of_death(message) if killed_for is None else killed_for
        if job is not None:
            self._director.lost(job, None if reason == "cancel" or self._cancel_by else reason)
        elif was in ("starting", "restarting"):
            self._start_failed(str(reason) if isinstance(killed_for, Sentence) else message.last_words)

    def _start_failed(self, why: str) -> None:
        self._failed_starts += 1
        pause = self._limits.backoff_s * 2 ** (self._failed_starts - 1)
        self._start_after = time.monotonic() + min(pause, self._limits.longest_backoff_s)
        self.state = "restarting"
        last_line = why.strip().splitlines()[-1] if why.strip() else "no reason given"
        self.reason = Sentence(template=N_("The engine does not start ({reason})."), params={"reason": last_line[:300]})
        if self._failed_starts >= self._limits.hopeless_starts:
            self._director.cannot_work(self.reason)

    def _patience(self) -> float | None:
        """How long nothing needs to be looked at unless something comes in."""
        if self._process is None:
            idle = not self._eager or self.state == "unusable"
            return None if idle else max(0.0, self._start_after - time.monotonic())
        return 0.1 if self._job is not None or self.state in ("starting", "restarting") else None

    def _shut_down(self) -> None:
        if self._process is not None:
            self._process.stop()
        job, self._job, self._process, self.state = self._job, None, None, "off"
        if job is not None:
            self._director.lost(job, STOPPED)


SLOW_START = N_("The engine took longer than {limit} s to start.")
STOPPED = Sentence(template=N_("The lab was stopped before this run ended; press Run again."))


def cause_of_death(end: Ended) -> Sentence:
    """Why a worker that was at work is gone, as far as its parent can tell."""
    if end.returncode == -_SIGKILL:
        return Sentence(
            template=N_(
                "The engine's process was killed (signal {number}), most likely because the machine ran out of "
                "memory: choose a smaller model, batch or length, or press Run again."
            ),
            params={"number": _SIGKILL},
        )
    if end.returncode < 0:
        return Sentence(
            template=N_("The engine's process crashed (signal {number}); it was restarted, press Run again."),
            params={"number": -end.returncode},
        )
    return Sentence(
        template=N_("The engine's process ended by itself (exit code {code}); it was restarted, press Run again."),
        params={"code": end.returncode},
    )
