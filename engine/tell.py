"""What one job says while it runs: where it is, its prompt, its steps; thinned so that saying costs little.

Nothing here is called inside a timed region. Asking it how things go is also where a job learns that it
was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from pydantic import BaseModel

from engine.ceilings import Ceilings
from engine.errors import N_, Sentence
from engine.experiment_record import AnyRecord
from engine.measure import Stopped
from engine.protocol import Advanced, Calibrated, Prompted, Recorded, Stepped
from engine.record import ActiveState, Progress, Prompt, Step

STEPS_AT_ONCE = 8
SECONDS_BETWEEN = 0.1
COMPILING = N_("Compiling the kernels for {format} weights; this takes some seconds, once on this machine.")


class Teller:
    """The voice of one job.

    compiled_ns: what compiling kernels has taken of its time so far.
    """

    def __init__(self, job_id: str, send: Callable[[BaseModel], None], cancelled: Callable[[], bool]) -> None:
        self.cancelled = cancelled
        self.compiled_ns = 0
        self._state: ActiveState = "loading"
        self._id = job_id
        self._send = send
        self._steps: list[Step] = []
        self._steps_sent_at = 0.0
        self._last_said: tuple[ActiveState, Sentence] | None = None
        self._said_at = 0.0

    def state(self, state: ActiveState) -> None:
        """Say what comes now.

        Raises:
            Stopped: the job was cancelled.
        """
        self.check()
        self._state = state
        self._send(Advanced(id=self._id, state=state))

    def progress(self, state: ActiveState) -> Callable[[Sentence, float | None], None]:
        """What to call as one long piece of work goes on; raises Stopped once the job was cancelled."""

        def tell(sentence: Sentence, fraction: float | None) -> None:
            self.check()
            self._state = state
            at = monotonic()
            if (state, sentence) == self._last_said and at < self._said_at + SECONDS_BETWEEN:
                return
            self._last_said, self._said_at = (state, sentence), at
            self._send(Advanced(id=self._id, state=state, progress=Progress(sentence=sentence, fraction=fraction)))

        return tell

    def compiling(self, format_: str) -> None:
        """Kernels for weights in a format have to be compiled before the job goes on.

        Raises:
            Stopped: the job was cancelled.
        """
        self.progress(self._state)(Sentence(template=COMPILING, params={"format": format_}), None)

    def compiled(self, time_ns: int) -> None:
        """They are, and it took so long."""
        self.compiled_ns += time_ns

    def check(self) -> None:
        """Raise Stopped once the job was cancelled."""
        if self.cancelled():
            raise Stopped

    def prompt(self, prompt: Prompt) -> None:
        """The prompt as the model sees it."""
        self._send(Prompted(id=self._id, prompt=prompt))

    def ceilings(self, ceilings: Ceilings) -> None:
        """Ceilings that were measured for this job, to be kept."""
        self._send(Calibrated(id=self._id, ceilings=ceilings))

    def recorded(self, record: AnyRecord) -> None:
        """An experiment as far as it is now."""
        self._send(Recorded(id=self._id, record=record))

    def step(self, step: Step) -> None:
        """A measured step; sent with others, at the latest with the next one after 100 ms."""
        self._steps.append(step)
        if len(self._steps) >= STEPS_AT_ONCE or monotonic() > self._steps_sent_at + SECONDS_BETWEEN:
            self.flush()

    def flush(self) -> None:
        """Send the steps that wait."""
        if self._steps:
            self._send(Stepped(id=self._id, steps=self._steps))
        self._steps, self._steps_sent_at = [], monotonic()
