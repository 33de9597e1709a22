"""A broker with a real worker for the tests, on ceilings made up beforehand so that no test waits for a calibration."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from records import ceilings

from engine import catalogue, ledger
from engine.broker import Broker
from engine.ceilings import Ceilings, DeviceFacts, LinearPoint
from engine.record import RunRequest, RunView
from engine.store import Store, open_store
from engine.supervisor import Limits

MODEL = "tiny-3.7m"
START_S = 120.0


def ask(prompt: str = "Once upon a time", **changes: object) -> RunRequest:
    """A short run of the smallest model."""
    return RunRequest.model_validate({"model": MODEL, "prompt": prompt, "max_new_tokens": 8, **changes})


def ask_long() -> RunRequest:
    """A run of half a minute or so, whose steps take some ten milliseconds each."""
    return ask(max_new_tokens=2000, batch=48)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for something that has to come true; generous, since the tests' machine may be busy."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.01)


def made_up_ceilings(device: DeviceFacts, *packed: str) -> Ceilings:
    """Ceilings that hold for this device and know the smallest model's shapes, as if measured here.

    packed: weight formats beside fp32 whose shapes are known too.
    """
    spec = catalogue.load(MODEL)
    points = []
    for weights in ("fp32", *packed):
        step = ledger.decode(spec, 1, formats=ledger.Formats.engine("fp32", weights))
        read = step.bytes.weights - sum(op.bytes.weights for op in step.of_kind("embedding"))
        points.append(
            LinearPoint(k=256, n=256, dtype="fp32", rows=1, time_ns=5e4, spread=0.1, working_set_bytes=int(read))
        )
    return ceilings(device=device, linear=points)


def start_broker(store: Store, limits: Limits | None = None) -> Broker:
    """A started broker whose worker is ready and whose store has ceilings."""
    broker = Broker(store, limits=limits)
    broker.start()
    wait_until(lambda: broker.machine().worker == "ready", START_S, "the worker's start")
    device = broker.machine().device
    assert device is not None
    store.put_ceilings(made_up_ceilings(device, "int8"))
    return broker


def new_store(folder: Path) -> Store:
    """An empty store in a folder."""
    return open_store(f"sqlite:///{folder}/lab.db")


def wait_for_steps(broker: Broker, run_id: str, count: int = 1) -> RunView:
    """Wait until a run has measured some steps."""

    def enough() -> bool:
        view = broker.snapshot(run_id)
        assert not view.ended, f"the run {view.state} after {view.steps_so_far} steps: {view.error}"
        return view.steps_so_far >= count

    wait_until(enough, 60, f"{count} steps")
    return broker.snapshot(run_id)


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie that nobody has collected yet has)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return "State:\tZ" in status or "State:\tX" in status
