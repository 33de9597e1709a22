"""Steps of one model timed over a growing batch, prompt or context, by the engine that runs prompts.

Prefills read made-up tokens; decode steps attend a cache that was filled with made-up numbers instead of by reading a
prompt first: a step takes as long whatever the numbers are. Weights are the model's own.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from engine import ledger, random_shapes, request, sweeps
from engine.cache import KVCache
from engine.errors import N_, LabError, Sentence
from engine.expected import Prediction
from engine.experiment import Predicted, Timed
from engine.experiment_job import PointByPoint
from engine.experiment_record import AnyRecord
from engine.hybrid_cache import State
from engine.model import Model
from engine.model_job import WithModel
from engine.record import FinalState, StepBytes
from engine.source import Source
from engine.spec import Spec
from engine.sweeps import SweepPoint, SweepRecord, SweepRequest

DECODES = 3
"""Decode steps behind one sample, after one that is not timed; the median counts."""
FILLING = 0.01


class SweepInProgress(WithModel, PointByPoint):
    """One sweep and its points so far."""

    _points: list[SweepPoint]
    _model: Model
    _ids: Tensor

    @property
    def _asked(self) -> SweepRequest:
        assert isinstance(self._job.request, SweepRequest)
        return self._job.request

    # ---- before the clock ------------------------------------------------------------------------

    def _prepare(self) -> list[Timed]:
        asked = self._asked
        sweeps.check(asked)
        self._points = []
        source = self._bring(sweeps.as_run(asked))
        cases = self._what_fits(source, self._cases(source.spec))
        self._model = self._load(source)
        self._points = self._predict(source, cases)
        generator = torch.Generator().manual_seed(0)
        most = max(point.tokens * point.batch for point in self._points)
        self._ids = torch.randint(source.spec.vocab_size, (most,), generator=generator).to(self._device)
        self._warm: set[int] = set()
        return list(self._points)

    def _cases(self, spec: Spec) -> list[dict[str, int]]:
        """Batch, tokens and positions attended at each value; a length beyond the model's context is left out."""
        asked = self._asked
        values = sorted(set(asked.values))
        if asked.axis == "batch":
            cases = [{"value": value, "batch": value, "tokens": 1, "context": asked.context} for value in values]
        elif asked.axis == "prompt":
            cases = [{"value": value, "batch": 1, "tokens": value, "context": value} for value in values]
        else:
            cases = [{"value": value, "batch": asked.batch, "tokens": 1, "context": value} for value in values]
        inside = [case for case in cases if case["context"] <= spec.max_position]
        if not inside:
            raise LabError(
                "The model attends {limit} positions at most; every value asked for lies beyond.",
                limit=f"{spec.max_position:,}",
            )
        if len(inside) < len(cases):
            beyond = N_("{count} values were left out: the model attends {limit} positions at most.")
            params: dict[str, Any] = {"count": len(cases) - len(inside), "limit": f"{spec.max_position:,}"}
            self._notes.append(Sentence(template=beyond, params=params))
        return inside

    def _what_fits(self, source: Source, cases: list[dict[str, int]]) -> list[dict[str, int]]:
        """The values whose weights and caches fit in memory; refused where not even the smallest does."""
        positions, formats = self._positions(cases), self._formats

        def needs(spec: Spec, case: dict[str, int]) -> int:
            held = ledger.resident(spec, batch=case["batch"], max_tokens=positions, formats=formats).total
            return int(held) + 4 * spec.vocab_size * case["batch"]

        free = self._room_bytes(source)
        random_shapes.check_fits(source.id, source.spec, lambda spec: needs(spec, cases[0]), free)
        request.check_memory(needs(source.spec, cases[0]), free)
        fitting = [case for case in cases if needs(source.spec, case) <= free]
        if len(fitting) < len(cases):
            first = next(case for case in cases if case not in fitting)
            template = N_("{count} values were left out: {value} would need {needed} GB and {free} GB are free.")
            params: dict[str, Any] = {"count": len(cases) - len(fitting), "value": first["value"]}
            params |= {"needed": f"{needs(source.spec, first) / 1e9:.2f}", "free": f"{free / 1e9:.2f}"}
            self._notes.append(Sentence(template=template, params=params))
        return fitting

    def _positions(self, cases: list[dict[str, int]]) -> int:
        """Places of the cache: one size for the whole sweep, so that it is allocated once for each batch."""
        return max(case["context"] for case in cases)

    def _predict(self, source: Source, cases: list[dict[str, int]]) -> list[SweepPoint]:
        """Every point's bytes, FLOPs and lines, now."""
        points = []
        for case in cases:
            lines = self._lines(source, case["batch"])
            prefill = self._asked.axis == "prompt"
            predicted = lines.prefill(case["tokens"]) if prefill else lines.decode(case["context"])
            points.append(_point(case, "prefill" if prefill else "decode", predicted))
        return points

    # ---- the clock -------------------------------------------------------------------------------

    def _sample(self, number: int) -> float:
        point = self._points[number]
        sample = self._prefill(number) if point.phase == "prefill" else self._decode(number)
        held = self._model.cache.bytes
        point.kv_held_bytes = held.kv_filled / point.batch
        return sample

    def _prefill(self, number: int) -> float:
        point = self._points[number]
        ids = self._ids[: point.tokens][None]
        positions = self._positions_of_sweep()
        if number not in self._warm and point.predicted_ns.measured_roof < 5e8:
            self._model.prefill(ids, positions=positions)
        self._warm.add(number)
        return float(self._clock.time(lambda: self._model.prefill(ids, positions=positions))[1])

    def _decode(self, number: int) -> float:
        point, model = self._points[number], self._model
        ids = self._ids[: point.batch]
        positions = self._positions_of_sweep()
        if (model.cache.batch, model.cache.positions) != (point.batch, positions) or number not in self._warm:
            model.prefill(ids[:, None], positions=positions)
            _fill(model.cache)
            self._warm.add(number)
        times = []
        for timed in range(DECODES + 1):
            model.cache.length = point.context - 1
            time_ns = self._clock.time(lambda: model.decode(ids))[1]
            if timed:
                times.append(time_ns)
        return float(statistics.median(times))

    def _positions_of_sweep(self) -> int:
        return max(point.context for point in self._points)

    def _record(self, state: FinalState | str, error: Sentence | None) -> AnyRecord:
        points = getattr(self, "_points", [])
        values = self.common(state, error) | {"request": self._asked, "model": self._facts, "points": points}
        return SweepRecord.model_validate(values)


def _point(case: dict[str, int], phase: str, predicted: Prediction) -> SweepPoint:
    step, lines = predicted.ledger, predicted.predicted_ns
    return SweepPoint.model_validate(
        {
            **case,
            "phase": phase,
            "flops": step.flops,
            "moved_bytes": step.bytes.total,
            "bytes": StepBytes(**step.bytes.as_dict()),
            "working_set_bytes": step.working_set_bytes,
            "predicted_ns": Predicted(
                datasheet=lines.datasheet, measured_roof=lines.measured_roof, expected=lines.expected
            ),
        }
    )


def _fill(cache: object) -> None:
    """Put numbers where a prompt would have: a page never written is one page of zeros, read from the nearest cache.

    A recurrent state is left as the first token made it; it is read and written whole at any context.
    """
    for tensor in _tensors(cache):
        tensor.fill_(FILLING)


def _tensors(part: object) -> Iterator[Tensor]:
    if isinstance(part, Tensor):
        if part.is_floating_point():
            yield part
    elif isinstance(part, list):
        for each in part:
            yield from _tensors(each)
    elif not isinstance(part, State) and (isinstance(part, KVCache) or type(part).__module__ == "engine.hybrid_cache"):
        for each in vars(part).values() if hasattr(part, "__dict__") else ():
            yield from _tensors(each)
