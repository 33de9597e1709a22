"""Runs that a page may still ask for: those being made, and the last that ended.

A run that ended stays here until it is in the store, and a while longer so that its viewers need not
go there. Bounded by count and by steps, since a run may have thousands of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from engine.live import LiveRun
from engine.saving import KEPT_UNSAVED

KEPT_RUNS = 64
KEPT_STEPS = 40_000


class History:
    """Live runs by id. What has not ended is never forgotten; what could not be saved, last."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, LiveRun] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, run: LiveRun) -> None:
        """Remember a run, and forget the oldest of those that ended where they are too many."""
        with self._lock:
            self._runs[run.id] = run
            ended = [each for each in self._runs.values() if each.ended]
            self._forget([each for each in ended if each.notice is None], KEPT_RUNS, KEPT_STEPS)
            self._forget([each for each in ended if each.notice is not None], KEPT_UNSAVED, None)

    def get(self, run_id: str) -> LiveRun | None:
        """The run with this id, if it is still here."""
        return self._runs.get(run_id)

    def _forget(self, runs: list[LiveRun], most_runs: int, most_steps: int | None) -> None:
        """Keep the newest of these, and more as long as there is room."""
        steps = 0
        for kept, run in enumerate(reversed(runs)):
            steps += len(run.steps)
            if kept and (kept >= most_runs or (most_steps is not None and steps > most_steps)):
                del self._runs[run.id]
