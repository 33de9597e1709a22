"""The models this engine runs, in plain torch: `load` one, then `prefill` a prompt and `decode` token by token."""

from __future__ import annotations

from engine.model.loading import load
from engine.model.phases import Model

__all__ = ["Model", "load"]
