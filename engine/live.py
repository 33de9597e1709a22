"""A run while it is being made, as the web process holds it: growing lists, and who waits for them.

Every change becomes one JSON event, serialised once however many viewers follow it. Steps go out in
columns: a viewer's chart wants columns, and names are not repeated for each step.

| event | when | fields |
|---|---|---|
| state | the run moved on | state, progress {sentence, fraction} or null |
| queue | its place changed | place (1 is next), expected_wait_s |
| prompt | the prompt was tokenized | prompt |
| steps | steps were measured | first, and one list for each of COLUMNS |
| end | nothing more will come | state, error {template, params} or null, notice likewise |
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import orjson

from engine import __version__
from engine.errors import Sentence
from engine.record import (
    SCHEMA,
    ActiveState,
    FinalState,
    Output,
    PredictedNs,
    Progress,
    Prompt,
    Run,
    RunRequest,
    RunView,
    Step,
    StepBytes,
    StepParts,
)

_FROM_STEP = (
    *("index", "phase", "tokens", "context", "token_ids", "text"),
    *("time_ns", "host_ns", "sample_ns", "detokenize_ns", "flops", "bound", "flags"),
)
_FROM_BYTES = tuple(StepBytes.model_fields)
_FROM_PARTS = tuple(StepParts.model_fields)
_LINES = tuple(PredictedNs.model_fields)
COLUMNS = (*_FROM_STEP, *_FROM_BYTES, *_FROM_PARTS, *(f"{line}_ns" for line in _LINES))
"""The lists of a `steps` event, all of one length."""


def steps_event(steps: Sequence[Step], first: int) -> dict[str, Any]:
    """The `steps` event of consecutive steps, the first of which is number `first` of the run."""
    event: dict[str, Any] = {"type": "steps", "first": first}
    for name in _FROM_STEP:
        event[name] = [getattr(step, name) for step in steps]
    for name in _FROM_BYTES:
        event[name] = [getattr(step.bytes, name) for step in steps]
    for name in _FROM_PARTS:
        event[name] = [getattr(step.parts, name) for step in steps]
    for line in _LINES:
        event[f"{line}_ns"] = [getattr(step.predicted_ns, line) for step in steps]
    return event


def events_of(run: Run) -> list[str]:
    """What a viewer of a finished run would have seen, in the fewest events."""
    events: list[dict[str, Any]] = []
    if run.prompt is not None:
        events.append({"type": "prompt", "prompt": run.prompt.model_dump(mode="json")})
    if run.steps:
        events.append(steps_event(run.steps, 0))
    events.append(_end_event(run.state, run.error, None))
    return [orjson.dumps(event).decode() for event in events]


def _end_event(state: FinalState, error: Sentence | None, notice: Sentence | None) -> dict[str, Any]:
    return {
        "type": "end",
        "state": state,
        "error": error.model_dump() if error else None,
        "notice": notice.model_dump() if notice else None,
    }


class LiveRun:
    """One run from its request to its record. Written by the broker, read by any thread or event loop."""

    def __init__(self, run_id: str, owner: str, request: RunRequest, created_at: str) -> None:
        self.id = run_id
        self.owner = owner
        self.request = request
        self.created_at = created_at
        self.state: ActiveState | FinalState = "queued"
        self.record: Run | None = None
        self.prompt: Prompt | None = None
        self.steps: list[Step] = []
        self.notice: Sentence | None = None
        self.started_at: float | None = None
        self._progress: Progress | None = None
        self._place: tuple[int, float] | None = None
        self._error: Sentence | None = None
        self._events: list[str] = []
        self._changed = threading.Condition()
        self._wakeups: dict[asyncio.AbstractEventLoop, asyncio.Event] = {}

    # ---- written by the broker -------------------------------------------------------------------

    def advance(self, state: ActiveState, progress: Progress | None = None) -> None:
        """Say what is being done now."""
        with self._changed:
            if (self.state, self._progress) == (state, progress):
                return
            self.state, self._progress, self._place = state, progress, None
            if self.started_at is None:
                self.started_at = time.monotonic()
            shown = progress.model_dump(mode="json") if progress else None
            self._publish({"type": "state", "state": state, "progress": shown})

    def wait_at(self, place: int, expected_wait_s: float) -> None:
        """Say which place in the queue it has, 1 being the next; published when the place changes, not each second."""
        with self._changed:
            moved = self._place is None or self._place[0] != place
            self._place = (place, expected_wait_s)
            if moved:
                self._publish({"type": "queue", "place": place, "expected_wait_s": round(expected_wait_s, 1)})

    def tokenized(self, prompt: Prompt) -> None:
        """Add the prompt as the model sees it."""
        with self._changed:
            self.prompt = prompt
            self._publish({"type": "prompt", "prompt": prompt.model_dump(mode="json")})

    def extend(self, steps: Iterable[Step]) -> None:
        """Add measured steps."""
        new = list(steps)
        with self._changed:
            first = len(self.steps)
            self.steps.extend(new)
            self._publish(steps_event(new, first))

    def end(self, record: Run, notice: Sentence | None) -> None:
        """Close the run with its record; steps that came only with the record are published first."""
        with self._changed:
            missing = record.steps[len(self.steps) :]
            if missing:
                first = len(self.steps)
                self.steps.extend(missing)
                self._publish(steps_event(missing, first))
            self.record, self.steps = record, record.steps  # one copy of the steps, not two
            self.state, self.notice = record.state, notice
            self._error, self._place, self._progress = record.error, None, None
            self._publish(_end_event(record.state, record.error, notice))

    def closed(self, state: FinalState, error: Sentence | None) -> Run:
        """A record of what is known, for a run that will get none from the engine."""
        return Run(
            schema=SCHEMA,
            id=self.id,
            state=state,
            created_at=self.created_at,
            package_version=__version__,
            model=None,
            device=None,
            ceilings=None,
            probe=None,
            request=self.request,
            prompt=self.prompt,
            output=Output(
                text="".join(step.text for step in self.steps),
                token_ids=[step.token_ids[0] for step in self.steps],
                stopped_by="cancelled" if state == "cancelled" else None,
            ),
            steps=self.steps,
            summary=None,
            error=error,
        )

    def _publish(self, event: dict[str, Any]) -> None:
        self._events.append(orjson.dumps(event).decode())
        self._changed.notify_all()
        wakeups, self._wakeups = self._wakeups, {}
        for loop, wakeup in wakeups.items():
            with suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits there any more
                loop.call_soon_threadsafe(wakeup.set)

    # ---- read by anyone --------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether the record is there and nothing more will come."""
        return self.record is not None

    def steps_left_s(self) -> float:
        """How long the steps still to come take, if they take as long as those so far; the text may end sooner."""
        with self._changed:
            done, measured_s = len(self.steps), sum(step.time_ns for step in self.steps) / 1e9
        return measured_s * max(0, self.request.max_new_tokens - done) / done if done else 0.0

    def view(self, since: int) -> RunView:
        """What a page shows: everything but the steps it has already, of which there are `since`."""
        with self._changed:
            place, wait = self._place or (None, None)
            return RunView(
                id=self.id,
                state=self.state,
                request=self.request,
                place=place,
                expected_wait_s=wait,
                progress=self._progress,
                prompt=self.prompt,
                steps=self.steps[since:],
                steps_so_far=len(self.steps),
                error=self._error,
                notice=self.notice,
            )

    def events(self, since: int) -> list[str]:
        """The events after the first `since`."""
        with self._changed:
            return self._events[since:]

    def wait(self, since: int, timeout_s: float) -> list[str]:
        """The same, after waiting for the first of them at most `timeout_s`; blocks this thread."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._events) > since, timeout_s)
            return self._events[since:]

    async def wait_async(self, since: int, timeout_s: float) -> list[str]:
        """The same for an event loop, however many of its tasks wait: one wake-up a change and loop."""
        with self._changed:
            if len(self._events) > since:
                return self._events[since:]
            wakeup = self._wakeups.setdefault(asyncio.get_running_loop(), asyncio.Event())
        try:
            await asyncio.wait_for(wakeup.wait(), timeout_s)
        except TimeoutError:
            return []
        return self.events(since)
