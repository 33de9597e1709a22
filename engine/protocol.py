"""What the web process and the engine's process say to each other: one JSON object a line.

Commands go to the worker's standard input, events come from its standard output. Both sides build and
check the lines with these types, and neither knows how the other is made. Nothing here is torch's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from engine.ceilings import Ceilings, DeviceFacts
from engine.errors import Sentence
from engine.experiment_record import Record, Request
from engine.record import ActiveState, Progress, Prompt, Run, RunRequest, Step


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, protected_namespaces=())

    def to_line(self) -> bytes:
        """The message as one line of UTF-8, newline included."""
        return self.model_dump_json(by_alias=True).encode() + b"\n"


# ---- commands: broker to worker ------------------------------------------------------------------


class RunJob(_Line):
    """Measure one request. `ceilings` are those the store holds for this worker's device, if any."""

    op: Literal["run"] = "run"
    id: str
    created_at: str
    request: RunRequest
    ceilings: Ceilings | None = None
    allow_paths: bool = False


class CalibrateJob(_Line):
    """Measure this machine's ceilings afresh, on the worker's own device or the one named."""

    op: Literal["calibrate"] = "calibrate"
    id: str
    device: str | None = None


class FetchJob(_Line):
    """Bring a checkpoint to this machine."""

    op: Literal["fetch"] = "fetch"
    id: str
    model: str


class ExperimentJob(_Line):
    """Time one thing over a range. `ceilings` are those the store holds for this worker's device, if any."""

    op: Literal["experiment"] = "experiment"
    id: str
    created_at: str
    request: Request
    ceilings: Ceilings | None = None
    allow_paths: bool = False


class Cancel(_Line):
    """End the job with this id as soon as its current step is over."""

    op: Literal["cancel"] = "cancel"
    id: str


class Ping(_Line):
    """Ask for a `Pong`: the reading thread answers even while a step computes."""

    op: Literal["ping"] = "ping"


class Shutdown(_Line):
    """Exit now, whatever is running."""

    op: Literal["shutdown"] = "shutdown"


Job = RunJob | CalibrateJob | FetchJob | ExperimentJob
Command = Annotated[Job | Cancel | Ping | Shutdown, Field(discriminator="op")]


# ---- events: worker to broker --------------------------------------------------------------------


class Ready(_Line):
    """The worker waits for a job. `devices` are those it can compute on, its own choice first."""

    event: Literal["ready"] = "ready"
    devices: list[DeviceFacts] = Field(min_length=1)


class Unusable(_Line):
    """The worker cannot ever work as installed (no torch, no such device); starting it again is no use."""

    event: Literal["unusable"] = "unusable"
    error: Sentence


class Advanced(_Line):
    """A job came further: what it is doing, and which share of that is done where it is known."""

    event: Literal["advanced"] = "advanced"
    id: str
    state: ActiveState
    progress: Progress | None = None


class Prompted(_Line):
    """The prompt as the model sees it."""

    event: Literal["prompted"] = "prompted"
    id: str
    prompt: Prompt


class Stepped(_Line):
    """Measured steps, in order, several at once."""

    event: Literal["stepped"] = "stepped"
    id: str
    steps: list[Step]


class Calibrated(_Line):
    """Ceilings to keep: from a calibration, or what a run had to add for its model."""

    event: Literal["calibrated"] = "calibrated"
    id: str
    ceilings: Ceilings


class Recorded(_Line):
    """An experiment as far as it is: first all its predictions, then the same with what was measured so far."""

    event: Literal["recorded"] = "recorded"
    id: str
    record: Record


class Finished(_Line):
    """The job is over. A run or an experiment carries its record; another kind its error, or that it was cancelled."""

    event: Literal["finished"] = "finished"
    id: str
    run: Run | None = None
    record: Record | None = None
    error: Sentence | None = None
    cancelled: bool = False


class Pong(_Line):
    """The process is alive."""

    event: Literal["pong"] = "pong"


Event = Annotated[
    Ready | Unusable | Advanced | Prompted | Stepped | Calibrated | Recorded | Finished | Pong,
    Field(discriminator="event"),
]

_COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)
_EVENTS: TypeAdapter[Event] = TypeAdapter(Event)


def read_command(line: bytes) -> Command:
    """Parse one line from the broker; pydantic's ValidationError when it is none of the commands."""
    return _COMMANDS.validate_json(line)


def read_event(line: bytes) -> Event:
    """Parse one line from the worker; pydantic's ValidationError when it is none of the events."""
    return _EVENTS.validate_json(line)
