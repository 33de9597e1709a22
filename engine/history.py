"""Runs that a page may still ask for: those being made, and the last that ended.

A run that ended stays here until it is in the store, and a while longer so that its viewers need not
go there. Bounded by count and by steps, since a run may have thousands of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from engine.live import LiveRun

KEPT_RUNS = 64
KEPT_STEPS = 40_000


class History:
    """Live runs by id. Those not ended are never dropped; nor the newest of those that ended."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, LiveRun] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, run: LiveRun) -> None:
        """Remember a run, forgetting the oldest that ended where they are too many."""
        with self._lock:
            self._runs[run.id] = run
            ended = [each for each in self._runs.values() if each.ended]
            steps = sum(len(each.steps) for each in ended)
            for oldest in ended[:-1]:
                if len(ended) <= KEPT_RUNS and steps <= KEPT_STEPS:
                    return
                del self._runs[oldest.id]
                ended.remove(oldest)
                steps -= len(oldest.steps)

    def get(self, run_id: str) -> LiveRun | None:
        """The run with this id, if it is still here."""
        return self._runs.get(run_id)
