"""What the engine's process keeps from job to job: the last model it loaded. And the ceilings a job needs, measured
where nobody has them yet.

One model at a time: memory is for the run. Knows nothing of prompts or steps.
"""

from __future__ import annotations

import gc

import torch

from engine import catalogue, settings
from engine import device as devices
from engine.calibrate import calibrate
from engine.calibrate_model import for_model, weight_bytes
from engine.ceilings import Ceilings
from engine.model import Model, choosing, load
from engine.neighbours import Neighbours
from engine.request import NARROWER_KV
from engine.source import Source
from engine.spec import Spec
from engine.tell import Teller

DEMO_MODEL = "smollm2-135m"


class Bench:
    """The worker's one model, and whose shapes were last asked for."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._loaded: tuple[str, str, str, str | None] | None = None
        self._shapes: tuple[Spec, str, str | None, str | None] = (catalogue.load(DEMO_MODEL), "fp32", None, None)

    def has(self, source: Source, device: torch.device, dtype: str, weights: str | None = None) -> bool:
        """Whether this very model is loaded. `weights`: the format of its matrices where it is not `dtype`."""
        return self._loaded == (source.weights_hash(), str(device), dtype, weights)

    def held_bytes(self, source: Source, device: torch.device, dtype: str, weights: str | None = None) -> int:
        """What a run of this model need not take anew: its weights, and the caches of the run before."""
        if self._model is None or not self.has(source, device, dtype, weights):
            return 0
        caches = self._model.cache.bytes
        return self._model.resident_weight_bytes + caches.kv_allocated + caches.state + caches.conv

    def room_bytes(self, source: Source, device: torch.device, dtype: str, weights: str | None = None) -> int:
        """Bytes that a run of this model may take: what is free and what it holds already. Another model is let go."""
        if not self.has(source, device, dtype, weights):
            self.clear()
        return self.held_bytes(source, device, dtype, weights) + devices.free_bytes(device)

    def model(
        self,
        source: Source,
        device: torch.device,
        dtype: str,
        weights: str | None = None,
        kv: str | None = None,
    ) -> Model:
        """The model of a source, loaded if it is not; the one before it is let go first.

        weights, kv: the formats of its matrices and its cache where they are not `dtype`. The same weights serve
        whatever the cache is held in.

        Raises:
            LabError: the source's weights cannot be used, or the engine does not run its family, or not so.
        """
        if not self.has(source, device, dtype, weights) or self._model is None:
            self.clear()
            self._model = load(source, device=str(device), dtype=dtype, weights=weights, kv=kv)
            self._loaded = (source.weights_hash(), str(device), dtype, weights)
        self._model.hold_kv(kv)
        return self._model

    def clear(self) -> None:
        """Let go of the model and its memory."""
        self._model = self._loaded = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def calibrate(self, device: torch.device, teller: Teller) -> Ceilings:
        """This device's ceilings, measured now: the general ones, and those of the shapes last asked for.

        Which kernel takes which product is forgotten and measured anew too, so the model is let go.

        Raises:
            Stopped: the job was cancelled.
        """
        self.clear()
        choosing.forget()
        return self._add_model(self._general(device, teller), *self._shapes, teller)

    def ceilings(
        self,
        device: torch.device,
        spec: Spec,
        dtype: str,
        known: Ceilings | None,
        teller: Teller,
        weights: str | None = None,
        kv: str | None = None,
    ) -> Ceilings:
        """Ceilings that hold for this device and know this model's shapes; measured where there are none.

        Args:
            dtype: "fp32" or "bf16".
            known: what the store has; used if it was measured on this device with this software and threads.
            weights, kv: the formats of the matrices and of the cache where they are not `dtype`.

        Raises:
            Stopped: the job was cancelled.
        """
        self._shapes = (spec, dtype, weights, kv)
        known = self.general(device, known, teller)
        if not _knows(_of_model(known, spec, dtype, weights), kv):
            known = self._add_model(known, *self._shapes, teller)
            teller.ceilings(known)
        return _of_model(known, spec, dtype, weights)

    def general(self, device: torch.device, known: Ceilings | None, teller: Teller) -> Ceilings:
        """Ceilings that hold for this device, whatever model they know; measured where there are none.

        Raises:
            Stopped: the job was cancelled.
        """
        if known is None or Ceilings.key(known.device) != Ceilings.key(devices.facts(device)):
            known = self._general(device, teller)
            teller.ceilings(known)
        return known

    def _general(self, device: torch.device, teller: Teller) -> Ceilings:
        tell = teller.progress("calibrating")
        return calibrate(device, settings.threads(), progress=tell, should_stop=teller.cancelled)

    def _add_model(
        self, ceilings: Ceilings, spec: Spec, dtype: str, weights: str | None, kv: str | None, teller: Teller
    ) -> Ceilings:
        tell, neighbours = teller.progress("calibrating"), Neighbours()
        added = for_model(ceilings, spec, dtype, progress=tell, should_stop=teller.cancelled, weights=weights, kv=kv)
        return added.model_copy(update={"other_cores": busiest(added.other_cores, neighbours.other_cores())})


def busiest(before: float | None, now: float | None) -> float | None:
    """Others' work at its worst, over all that a set of ceilings was measured in."""
    return max((cores for cores in (before, now) if cores is not None), default=None)


def _knows(ceilings: Ceilings, kv: str | None) -> bool:
    """Whether one model's points include those with a cache in this format; None for what is computed in."""
    forms = {point.form for point in ceilings.small_ops if point.kind == "attention"}
    measured = kv in forms if kv is not None else not forms or bool(forms - set(NARROWER_KV["float32"]))
    return bool(ceilings.linear) and measured


def _of_model(ceilings: Ceilings, spec: Spec, dtype: str, weights: str | None) -> Ceilings:
    """The same without the points of other models: all that this model's predictions use, and a record needs."""
    key = (dtype, weight_bytes(spec, dtype, weights))
    return ceilings.model_copy(
        update={
            "linear": [point for point in ceilings.linear if (point.dtype, point.working_set_bytes) == key],
            "small_ops": [point for point in ceilings.small_ops if (point.dtype, point.working_set_bytes) == key],
            "controls": [point for point in ceilings.controls if (point.dtype, point.working_set_bytes) == key],
        }
    )
