"""The models that can run here, looked for once for all that one rerun of a page asks."""

from __future__ import annotations

import time
from pathlib import Path

from engine import checkpoint, settings
from engine.checkpoint import ModelChoice

KEPT_S = 0.5
"""Longer than a rerun; what is fetched meanwhile is seen by the next."""

_Places = tuple[Path, Path | None]
_kept: tuple[float, _Places, dict[str, ModelChoice]] | None = None


def choices() -> dict[str, ModelChoice]:
    """The same as `checkpoint.available`, by id."""
    global _kept
    kept, places = _kept, (settings.home(), settings.models_folder())
    if kept is None or kept[1] != places or time.monotonic() > kept[0] + KEPT_S:
        kept = _kept = (time.monotonic(), places, {choice.id: choice for choice in checkpoint.available()})
    return kept[2]
