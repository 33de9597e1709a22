"""What the engine's process keeps from job to job: the last model it loaded, and this machine's ceilings.

One model at a time: memory is for the run. Knows nothing of prompts or steps.
"""

from __future__ import annotations

import gc

import torch

from engine import device as devices
from engine import settings, weights
from engine.calibrate import calibrate
from engine.calibrate_model import for_model, weight_bytes
from engine.ceilings import Ceilings
from engine.checkpoint import Source
from engine.model import Model
from engine.spec import Spec
from engine.tell import Teller


class Bench:
    """The worker's one model and its ceilings by device."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._loaded: tuple[str, str, str] | None = None
        self._ceilings: dict[str, Ceilings] = {}

    def has(self, source: Source, device: torch.device, dtype: str) -> bool:
        """Whether this very model is loaded."""
        return self._loaded == (source.weights_hash(), str(device), dtype)

    def model(self, source: Source, device: torch.device, dtype: str) -> Model:
        """The model of a source, loaded if it is not; the one before it is let go first.

        Raises:
            LabError: the source's weights cannot be used, or the engine does not run its family.
        """
        if not self.has(source, device, dtype) or self._model is None:
            self.clear()
            kept_in = getattr(torch, dtype)
            self._model = Model.from_tensors(source.spec, weights.tensors(source, kept_in), device, kept_in)
            self._loaded = (source.weights_hash(), str(device), dtype)
        return self._model

    def clear(self) -> None:
        """Let go of the model and its memory."""
        self._model = self._loaded = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def calibrate(self, device: torch.device, teller: Teller) -> Ceilings:
        """This device's general ceilings, measured now.

        Raises:
            Stopped: the job was cancelled.
        """
        ceilings = calibrate(
            device, settings.threads(), progress=teller.progress("calibrating"), should_stop=teller.cancelled
        )
        self._ceilings[Ceilings.key(ceilings.device)] = ceilings
        return ceilings

    def ceilings(
        self, device: torch.device, spec: Spec, dtype: str, known: Ceilings | None, teller: Teller
    ) -> Ceilings:
        """Ceilings that hold for this device and know this model's shapes; measured where neither is known.

        Args:
            dtype: "fp32" or "bf16".
            known: what the store has; used if it was measured on this device with this software and threads.

        Raises:
            Stopped: the job was cancelled.
        """
        key = Ceilings.key(devices.facts(device))
        if known is not None and Ceilings.key(known.device) == key:
            self._ceilings[key] = known
        ceilings = self._ceilings.get(key) or self.calibrate(device, teller)
        if not knows(ceilings, spec, dtype):
            ceilings = for_model(
                ceilings, spec, dtype, progress=teller.progress("calibrating"), should_stop=teller.cancelled
            )
        if ceilings is not known:
            self._ceilings[key] = ceilings
            teller.ceilings(ceilings)
        return ceilings


def knows(ceilings: Ceilings, spec: Spec, dtype: str) -> bool:
    """Whether this model's own shapes were measured in this dtype."""
    in_one_step = weight_bytes(spec, dtype)
    return any((point.dtype, point.working_set_bytes) == (dtype, in_one_step) for point in ceilings.linear)
