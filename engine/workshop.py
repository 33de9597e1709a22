"""What the engine's process does with a job: run, calibrate or fetch, and say how each of them ended.

Imports torch; imported by `engine.worker` once the process is safe to end. A job that fails says so
in one sentence and leaves the process fit for the next.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from queue import Empty
from threading import Event, Thread
from typing import TYPE_CHECKING

import torch
from pydantic import BaseModel

from engine import checkpoint, kernels, settings
from engine import device as devices
from engine.bench import DEMO_MODEL, Bench
from engine.errors import N_, LabError, Sentence
from engine.experiment_job import ExperimentInProgress
from engine.experiment_record import AnyRecord
from engine.kernels.notice import listening
from engine.lookup_job import LookupInProgress
from engine.measure import Stopped
from engine.protocol import CalibrateJob, ExperimentJob, FetchJob, Finished, Job, Ready, RunJob
from engine.record import Run
from engine.run_job import RunInProgress
from engine.shape_job import ShapeInProgress
from engine.sweep_job import SweepInProgress
from engine.tell import Teller

if TYPE_CHECKING:
    from engine.worker import Commands

IDLE_S = 1.0
"""Without a job for so long after the start, the demo model is loaded, so that the first run need not."""

OUT_OF_MEMORY = N_(
    "There was not enough memory: choose a smaller model, batch or length. What had been measured until then is kept."
)
DEFECT = N_("The engine failed with {kind}: a defect of the lab, described in its log. The next run is not affected.")


class Workshop:
    """The worker's one place of work.

    Raises:
        LabError: the device or the number of threads in the settings is none that there is here.
    """

    def __init__(self, commands: Commands, send: Callable[[BaseModel], None]) -> None:
        self._commands = commands
        self._send = send
        self._bench = Bench()
        self._at_work = Event()
        devices.use_threads(settings.threads())
        self._device = devices.choose()

    def serve(self) -> None:
        """Say what this process computes on, then do one job after another until the process ends."""
        warm_up(self._device)
        others = [kind for kind in devices.available() if kind != self._device.type]
        self._send(Ready(devices=[devices.facts(self._device), *map(devices.facts, others)]))
        Thread(target=self._bring_kernels, name="kernels", daemon=True).start()
        try:
            job = self._commands.jobs.get(timeout=IDLE_S)
        except Empty:
            self._prepare()
            job = self._commands.jobs.get()
        while True:
            self._at_work.set()
            self._send(self._do(job))
            job = self._commands.jobs.get()

    def _do(self, job: Job) -> Finished:
        """One job, to its end, whatever that is."""
        teller = Teller(job.id, self._send, lambda: self._commands.cancelled(job.id))
        work = self._recorded(job, teller)
        spoilt = False
        try:
            with listening(teller):
                if work is not None:
                    return _finished(job, work.measure())
                if isinstance(job, CalibrateJob):
                    teller.ceilings(self._bench.calibrate(devices.choose(job.device), teller))
                elif isinstance(job, FetchJob):
                    checkpoint.ensure(job.model, teller.progress("fetching"))
                return Finished(id=job.id)
        except Stopped:
            return _finished(job, work.close("cancelled") if work else None, cancelled=True)
        except LabError as trouble:
            error = trouble.sentence
        except Exception as trouble:
            error, spoilt = _explain(trouble), True
        if spoilt:  # not in the handler: there the exception still holds the frames that hold the memory
            self._bench.clear()
        return _finished(job, work.close("failed", error) if work else None, error=error)

    def _recorded(self, job: Job, teller: Teller) -> RunInProgress | ExperimentInProgress | None:
        """What makes the record of a job, if it is one that leaves a record."""
        if isinstance(job, RunJob):
            return RunInProgress(job, self._bench, teller)
        if isinstance(job, ExperimentJob):
            kinds: dict[str, type[ExperimentInProgress]] = {
                "shape": ShapeInProgress,
                "sweep": SweepInProgress,
                "lookup": LookupInProgress,
            }
            return kinds[job.request.kind](job, self._bench, teller)
        return None

    def _bring_kernels(self) -> None:
        """Load the compiled kernels that are on this machine, until there is work: they then belong to the process and
        not to its first model, in time and in memory. A first run that comes at once loads what it needs itself.
        """
        try:
            if self._device.type == "cpu" and kernels.usable():
                # Not at the top: it needs numba, which may be missing and takes a while.
                from engine.kernels import entry

                entry.bring(lambda: not self._at_work.is_set())
        except Exception as trouble:
            print(f"engine: the kernels were not loaded ahead: {trouble}", flush=True)

    def _prepare(self) -> None:
        """Load the demo model if it is on this machine; whatever is wrong with it, its first run will say."""
        try:
            if any(choice.id == DEMO_MODEL and choice.fetched for choice in checkpoint.available()):
                with listening(_Ahead(self._commands)):
                    self._bench.model(checkpoint.ensure(DEMO_MODEL), self._device, "float32")
        except Stopped:
            pass  # a job has come, which waits for the same kernels and says so
        except (LabError, MemoryError, RuntimeError) as trouble:
            print(f"engine: the demo model was not loaded ahead: {trouble}", flush=True)


class _Ahead:
    """Waits for kernels that nobody has asked for yet, until there is a job."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def compiling(self, format_: str) -> None:
        """As `engine.kernels.notice.Listener`.

        Raises:
            Stopped: a job has come.
        """
        if not self._commands.jobs.empty():
            raise Stopped

    def compiled(self, time_ns: int) -> None:
        """As `engine.kernels.notice.Listener`."""


def _finished(
    job: Job, record: Run | AnyRecord | None, *, error: Sentence | None = None, cancelled: bool = False
) -> Finished:
    if isinstance(record, Run):
        return Finished(id=job.id, run=record, error=error, cancelled=cancelled)
    return Finished(id=job.id, record=record, error=error, cancelled=cancelled)


def warm_up(device: torch.device) -> None:
    """Let torch start its threads and load its kernels now, and not in the first run."""
    matrix = torch.ones(256, 256, device=device)
    (matrix @ matrix).sum().item()


def _explain(trouble: Exception) -> Sentence:
    said = str(trouble).lower()
    # The CPU allocator has no exception of its own; a GPU's has.
    if (
        isinstance(trouble, MemoryError | torch.OutOfMemoryError)
        or "allocate memory" in said
        or "out of memory" in said
    ):
        return Sentence(template=OUT_OF_MEMORY)
    traceback.print_exception(trouble)
    return Sentence(template=DEFECT, params={"kind": type(trouble).__name__})
