"""What experiments on a whole model do alike: bring it, in the formats asked for, and what predicts its steps."""

from __future__ import annotations

from engine import checkpoint, hardware, ledger, request
from engine import device as devices
from engine.clock import Clock, clock_for
from engine.expected import Predictor, predictor
from engine.experiment_job import ExperimentInProgress
from engine.model import Model
from engine.model_facts import model_facts
from engine.record import ModelFacts, RunRequest
from engine.request import DTYPES
from engine.set_up import set_up
from engine.source import Source


class WithModel(ExperimentInProgress):
    """An experiment on one model, its matrices in what a run's would be."""

    _facts: ModelFacts | None = None
    _dtype = "float32"
    _formats = ledger.Formats.engine("fp32")
    _clock: Clock
    _as_run: RunRequest

    def _bring(self, asked: RunRequest) -> Source:
        """The model of `asked`, fetched where it is not here; settles device, dtype and formats."""
        self._device, self._as_run = devices.choose(asked.device), asked
        tell = self._teller.progress("fetching")
        source = checkpoint.ensure(asked.model, tell, allow_paths=self._job.allow_paths)
        self._dtype = request.choose_dtype(asked, source.spec.dtype)
        request.check_kv(asked.kv, source.id, source.spec, dtype=self._dtype, device=self._device.type)
        self._formats = ledger.Formats.engine(DTYPES[self._dtype], asked.weights, asked.kv)
        return source

    @property
    def _weights(self) -> str | None:
        """The format of the matrices where it is not what is computed in."""
        return self._formats.own_weights

    @property
    def _computed_in(self) -> str:
        return self._formats.multiplication

    def _room_bytes(self, source: Source) -> int:
        """Bytes that weights and caches may take."""
        assert self._device is not None
        return self._bench.room_bytes(source, self._device, self._dtype, self._weights)

    def _load(self, source: Source) -> Model:
        """The model in memory; its facts, its ceilings and its clock."""
        assert self._device is not None
        self._teller.state("loading")
        kv = self._formats.own_kv
        model = self._bench.model(source, self._device, self._dtype, self._weights, kv)
        set_up(model, self._as_run, source.id)  # the bench may hold it as a run before left it
        self._facts = model_facts(source, self._dtype, self._formats)
        plain = self._formats.plain_format
        self._ceilings = self._bench.ceilings(
            self._device, source.spec, plain, self._job.ceilings, self._teller, self._weights, kv
        )
        self._clock = clock_for(self._device)
        return model

    def _lines(self, source: Source, batch: int = 1) -> Predictor:
        """What predicts the model's steps here."""
        assert self._ceilings is not None
        device = hardware.of(self._ceilings.device)
        return predictor(source.spec, self._ceilings, device, self._formats, batch)
