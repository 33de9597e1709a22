"""The run that levers are asked about: what its decode step costs, and what predicts it otherwise."""

from __future__ import annotations

import statistics
from typing import Any

from engine import catalogue, request
from engine import spec as specs
from engine.ceilings import Ceilings
from engine.errors import LabError
from engine.expected import Predictor, predictor
from engine.ledger import Formats
from engine.lever_record import Foretold, Lever
from engine.present import AS_MEASURED, Present
from engine.random_shapes import PREFIX
from engine.random_shapes import read as read_random
from engine.record import Run
from engine.spec import Spec


class Base:
    """A run with decode steps and what predicts them."""

    def __init__(self, run: Run) -> None:
        decodes = [step for step in run.steps if step.phase == "decode"]
        if not decodes or run.ceilings is None or run.model is None or run.prompt is None:
            raise LabError("Run {id} has no decode step to improve; choose a run that wrote a few tokens.", id=run.id)
        self.run = run
        self.ceilings: Ceilings = run.ceilings
        self.prompt_ids = run.prompt.token_ids
        self.weights, self.kv = run.model.weight_format, run.model.kv_format
        self.dtype = run.model.dtype
        self.plain = request.DTYPES.get(self.dtype, "fp32")
        self.spec = spec_of(run.request.model, dict(run.model.config))
        scaled = run.probe
        self.now = Present(scaled.reading_scaled_by, scaled.multiplying_scaled_by) if scaled else AS_MEASURED
        middle = sorted(decodes, key=lambda step: step.context)[len(decodes) // 2]
        self.context, self.batch = middle.context, run.request.batch
        self.step_ns = statistics.median(step.predicted_ns.expected for step in decodes)
        self.measured_ns = statistics.median(step.time_ns for step in decodes)

    @property
    def formats(self) -> Formats:
        """What the run held, as the ledger names it."""
        return self.formats_with(self.weights, self.kv)

    def formats_with(self, weights: str, kv: str) -> Formats:
        """The same with other formats: of the matrices, the embedding and the head, as this engine holds them."""
        return Formats(weights, kv, "fp32", plain=self.plain, embedding=weights)

    def lines(self, *, batch: int | None = None) -> Predictor:
        """The predictor of the run's own formats."""
        return predictor(self.spec, self.ceilings, None, self.formats, batch or self.batch, now=self.now)

    def foretold(self, step_ns: float, *, batch: int | None = None) -> Foretold:
        """A step and its tokens a second."""
        return Foretold(step_ns=step_ns, tokens_per_s=(batch or self.batch) / step_ns * 1e9)

    @property
    def own(self) -> Foretold:
        """The run's own step, as it was expected."""
        return self.foretold(self.step_ns)

    def lever(self, predicted: Foretold, **rest: Any) -> Lever:
        """A lever of this run: its gain is over the run's own prediction."""
        return Lever(predicted=predicted, gain=predicted.tokens_per_s / self.own.tokens_per_s, **rest)

    def bandwidth_at(self, working_set_bytes: float) -> float:
        """This machine's bandwidth for a step of that size, in bytes/s, as it was right before the run."""
        return self.ceilings.bandwidth_at(working_set_bytes) / self.now.reading


def spec_of(model: str, config: dict[str, Any]) -> Spec:
    """The dimensions of a run's model: from the catalogue, from its random name, or from the config it recorded.

    Raises:
        LabError: none of these can be read.
    """
    if model in catalogue.ids():
        return catalogue.load(model)
    return read_random(model)[1] if model.startswith(PREFIX) else specs.read(config)
