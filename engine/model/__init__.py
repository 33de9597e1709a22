"""The models this engine runs, in plain torch: `load` one, then `prefill` a prompt and `decode` token by token."""

from __future__ import annotations

from engine.model.decoder import Decoder as Model

__all__ = ["Model"]
