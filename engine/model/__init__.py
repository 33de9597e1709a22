"""The models this engine runs, in plain torch: `load` one, then `prefill` a prompt and `decode` token by token."""

from __future__ import annotations

from engine.model.decoder import Decoder as Model
from engine.model.loading import load

__all__ = ["Model", "load"]
