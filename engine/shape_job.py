"""One weight matrix timed with 1 to 2048 rows, as the engine's own model would multiply it.

The shape is the model's, the values are made up: a product takes as long whatever the numbers are.
"""

from __future__ import annotations

from torch import Tensor

from engine import catalogue, matrices, shapes
from engine import device as devices
from engine.clock import clock_for
from engine.errors import Sentence
from engine.experiment import Timed, general
from engine.experiment_job import PointByPoint
from engine.experiment_record import AnyRecord
from engine.matrices import FORMATS, Matrix
from engine.measure import SAMPLE_NS, repetitions
from engine.record import FinalState
from engine.shape_product import Product
from engine.shapes import ShapePoint, ShapeRecord, ShapeRequest

WARM_UP_NS = 5e8
"""A call shorter than this is made once untimed before its first sample: kernels are chosen, outputs allocated."""


class ShapeInProgress(PointByPoint):
    """One matrix and its points so far."""

    _matrix: Matrix | None = None
    _product: Product

    @property
    def _asked(self) -> ShapeRequest:
        assert isinstance(self._job.request, ShapeRequest)
        return self._job.request

    def _prepare(self) -> list[Timed]:
        asked = self._asked
        shapes.check(asked)
        matrices.check_format(asked.weights)
        spec = catalogue.load(asked.model)
        matrix = matrices.named(spec, asked.matrix)
        self._device = devices.choose(asked.device)
        self._bench.clear()  # memory is for the matrix now
        matrices.check_memory(spec, matrix, asked, devices.free_bytes(self._device))
        self._ceilings = general(self._bench.general(self._device, self._job.ceilings, self._teller))
        self._matrix = matrix
        self._points = matrices.predict(matrix, asked.weights, asked.rows, self._ceilings)
        self._product = Product(matrix, asked.weights, max(asked.rows), self._device)
        self._elapsed = clock_for(self._device)
        self._calls: dict[int, int] = {}
        return list(self._points)

    def _sample(self, number: int) -> float:
        rows = self._points[number].rows

        def call() -> Tensor:
            return self._product(rows)

        if number not in self._calls:
            first = self._elapsed.time(call)[1]
            if first > WARM_UP_NS:
                self._calls[number] = 1
                return float(first)
            self._calls[number] = repetitions(max(1, self._elapsed.time(call)[1]), sample_ns=2 * SAMPLE_NS)
        times = self._calls[number]

        def calls() -> None:
            for _ in range(times):
                call()

        if times > 1:
            call()  # what the other points pushed out of the caches comes back untimed
        return self._elapsed.time(calls)[1] / times

    @property
    def _computed_in(self) -> str:
        return FORMATS[self._asked.weights]

    def _record(self, state: FinalState | str, error: Sentence | None) -> AnyRecord:
        values = self.common(state, error) | {"request": self._asked}
        if self._matrix is not None:
            weights = self._asked.weights
            values |= {"k": self._matrix.k, "n": self._matrix.n, "count": self._matrix.count, "dtype": FORMATS[weights]}
            values |= {"weight_bytes": self._matrix.bytes_in(weights), "points": self._points}
        return ShapeRecord.model_validate(values)

    _points: list[ShapePoint]
