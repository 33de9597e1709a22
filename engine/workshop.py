"""What the engine's process does with a job: run, calibrate or fetch, and say how each of them ended.

Imports torch; imported by `engine.worker` once the process is safe to end. A job that fails says so
in one sentence and leaves the process fit for the next.
"""

from __future__ import annotations

import gc
import traceback
from queue import Empty
from typing import TYPE_CHECKING

import torch

from engine import checkpoint, settings
from engine import device as devices
from engine.bench import Bench
from engine.errors import N_, LabError, Sentence
from engine.measure import Stopped
from engine.protocol import CalibrateJob, FetchJob, Finished, Job, Ready, RunJob
from engine.run_job import RunInProgress
from engine.tell import Teller

if TYPE_CHECKING:
    from engine.worker import Channel, Commands

DEMO_MODEL = "smollm2-135m"
IDLE_S = 1.0
"""Without a job for so long after the start, the demo model is loaded, so that the first run need not."""

OUT_OF_MEMORY = N_(
    "There was not enough memory: choose a smaller model, batch or length. What had been measured until then is kept."
)
DEFECT = N_("The engine failed with {kind}: a defect of the lab, described in its log. The next run is not affected.")


def serve(commands: Commands, channel: Channel) -> None:
    """Say what this process computes on, then do one job after another until the process ends."""
    bench = Bench()
    devices.use_threads(settings.threads())
    default = devices.choose()
    others = [kind for kind in devices.available() if kind != default.type]
    warm_up(default)
    channel.send(Ready(devices=[devices.facts(default), *map(devices.facts, others)]))
    try:
        job = commands.jobs.get(timeout=IDLE_S)
    except Empty:
        _prepare(bench)
        job = commands.jobs.get()
    while True:
        channel.send(do(job, bench, commands, channel))
        job = commands.jobs.get()


def warm_up(device: torch.device) -> None:
    """Let torch start its threads and load its kernels now, and not in the first run."""
    matrix = torch.ones(256, 256, device=device)
    (matrix @ matrix).sum().item()


def do(job: Job, bench: Bench, commands: Commands, channel: Channel) -> Finished:
    """One job, to its end, whatever that is."""
    teller = Teller(job.id, channel.send, lambda: commands.cancelled(job.id))
    run = RunInProgress(job, bench, teller) if isinstance(job, RunJob) else None
    error: Sentence | None = None
    try:
        if run is not None:
            return Finished(id=job.id, run=run.measure())
        if isinstance(job, CalibrateJob):
            teller.ceilings(bench.calibrate(devices.choose(job.device), teller))
        elif isinstance(job, FetchJob):
            checkpoint.ensure(job.model, progress=teller.progress("fetching"))
    except Stopped:
        return Finished(id=job.id, run=run.close("cancelled") if run else None, cancelled=True)
    except LabError as trouble:
        error = trouble.sentence
    except Exception as trouble:
        error = _explain(trouble)
        bench.clear()
        gc.collect()
    return Finished(id=job.id, run=run.close("failed", error) if run and error else None, error=error)


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


def _prepare(bench: Bench) -> None:
    """Load the demo model if it is on this machine; whatever is wrong with it, its first run will say."""
    try:
        fetched = any(choice.id == DEMO_MODEL and choice.fetched for choice in checkpoint.available())
        if fetched:
            bench.model(checkpoint.ensure(DEMO_MODEL), devices.choose(), "float32")
    except (LabError, MemoryError, RuntimeError) as trouble:
        print(f"engine: the demo model was not loaded ahead: {trouble}", flush=True)
