"""What the engine's process does for any experiment: predict, say so, time point after point, keep what was timed.

The order is the point: the record with every prediction is sent before anything is timed, and again after each
point, so that whatever ends the process, what was measured until then is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic
from typing import Any

import torch

from engine import __version__
from engine import device as devices
from engine.bench import Bench
from engine.ceilings import Ceilings
from engine.errors import N_, Sentence
from engine.experiment import Timed, flags
from engine.experiment_record import AnyRecord
from engine.measure import Stopped, summarise
from engine.neighbours import Neighbours
from engine.probe import probe, probed
from engine.protocol import ExperimentJob
from engine.record import FinalState, Probe
from engine.tell import Teller

BUDGET_S = 20.0
"""About how long points are measured again after each had its first turn."""
LONGEST_NS = 8e9
"""A call that would take longer is left out: a cancel has to be heard within seconds."""
MOST_SAMPLES = 9
SAYING_S = 0.15

MEASURING = N_("Measuring, one point after the other")


class ExperimentInProgress(ABC):
    """One experiment and what is known of it so far; `close` makes a record of that at any time."""

    def __init__(self, job: ExperimentJob, bench: Bench, teller: Teller) -> None:
        self._job = job
        self._bench = bench
        self._teller = teller
        self._device: torch.device | None = None
        self._ceilings: Ceilings | None = None
        self._probe: Probe | None = None
        self._notes: list[Sentence] = []
        self._samples: dict[int, list[float]] = {}
        self._said_at = 0.0

    def measure(self) -> AnyRecord:
        """Do it all.

        Raises:
            LabError: it cannot be measured; the sentence says why.
            Stopped: the job was cancelled.
        """
        with torch.inference_mode():
            points = self._prepare()
            self._say(always=True)
            self._time(points)
        return self.close("done")

    def close(self, state: FinalState, error: Sentence | None = None) -> AnyRecord:
        """The record of what is known now."""
        return self._record(state, error)

    def common(self, state: FinalState | str, error: Sentence | None) -> dict[str, Any]:
        """What records of all kinds say alike."""
        return {
            "schema": 1,
            "id": self._job.id,
            "state": state,
            "created_at": self._job.created_at,
            "package_version": __version__,
            "device": devices.facts(self._device) if self._device else None,
            "ceilings": self._ceilings,
            "probe": self._probe,
            "error": error,
            "notes": self._notes,
        }

    @abstractmethod
    def _prepare(self) -> list[Timed]:
        """Everything before the clock: checks, memory, ceilings, and every point's prediction, in order."""

    @abstractmethod
    def _rounds(self, points: list[Timed], told: Callable[[Sentence, float | None], None]) -> None:
        """Time the points, each as often as there is time for."""

    @abstractmethod
    def _record(self, state: FinalState | str, error: Sentence | None) -> AnyRecord:
        """The record with the points as they are."""

    @property
    @abstractmethod
    def _computed_in(self) -> str:
        """What is computed in, as `Formats.multiplication` names it."""

    # ---- the clock -------------------------------------------------------------------------------

    def _time(self, points: list[Timed]) -> None:
        assert self._device is not None
        self._teller.state("running")
        before_ns, neighbours = probe(self._device), Neighbours()
        told = self._teller.progress("running")
        self._rounds(points, told)
        self._probe = probed(before_ns, neighbours, self._device)

    def _keep(self, point: Timed, number: int, sample_ns: float) -> None:
        """Take one more sample of point `number`."""
        assert self._ceilings is not None
        samples = self._samples.setdefault(number, [])
        samples.append(sample_ns)
        timing = summarise(samples)
        point.time_ns, point.spread, point.samples = timing.time_ns, timing.spread, len(samples)
        point.flags = flags(point, self._ceilings, self._computed_in)
        self._say()

    def _say(self, *, always: bool = False) -> None:
        if always or monotonic() > self._said_at + SAYING_S:
            self._teller.recorded(self._record("running", None))
            self._said_at = monotonic()


class PointByPoint(ExperimentInProgress):
    """An experiment whose points can be timed in any order, again and again."""

    @abstractmethod
    def _sample(self, number: int) -> float:
        """Time point `number` once, in nanoseconds."""

    def _estimate_ns(self, points: list[Timed], number: int) -> float:
        """About how long point `number` will take, from the one before it."""
        before = points[number - 1].time_ns if number else None
        now = points[number].predicted_ns.measured_roof
        return now if before is None else before * max(1.0, now / points[number - 1].predicted_ns.measured_roof)

    def _rounds(self, points: list[Timed], told: Callable[[Sentence, float | None], None]) -> None:
        count = self._first_round(points, told)
        self._further_rounds(points[:count], told)

    def _first_round(self, points: list[Timed], told: Callable[[Sentence, float | None], None]) -> int:
        """Every point once, in order; returns how many were worth their time."""
        for number in range(len(points)):
            told(Sentence(template=MEASURING), 0.5 * number / len(points))
            if self._estimate_ns(points, number) > LONGEST_NS:
                left_out = N_("{count} points were left out: one call would take longer than {limit} s here.")
                params: dict[str, Any] = {"count": len(points) - number, "limit": f"{LONGEST_NS / 1e9:.0f}"}
                self._notes.append(Sentence(template=left_out, params=params))
                return number
            self._take(points, number)
        return len(points)

    def _further_rounds(self, points: list[Timed], told: Callable[[Sentence, float | None], None]) -> None:
        """All points in turn until the time is spent, so that a slow moment of the machine falls on all alike."""
        started = monotonic()
        for _round in range(MOST_SAMPLES - 1):
            for number, point in enumerate(points):
                spent = (monotonic() - started) / BUDGET_S
                told(Sentence(template=MEASURING), min(0.99, 0.5 + 0.5 * spent))
                if point.time_ns is None or spent + point.time_ns / 1e9 / BUDGET_S > 1:
                    continue
                self._take(points, number)
            if monotonic() - started > BUDGET_S:
                return

    def _take(self, points: list[Timed], number: int) -> None:
        if self._teller.cancelled():
            raise Stopped
        self._keep(points[number], number, self._sample(number))
