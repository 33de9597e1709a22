"""Finished runs that ship with the lab, recorded on real machines: something true to show before the first run.

Each `*.json` beside this file is one Run as `python -m engine runs export` writes it. Read-only.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from engine.record import Run


@cache
def runs() -> dict[str, Run]:
    """Every shipped run by its id, the newest first."""
    documents = [entry for entry in files(__name__).iterdir() if entry.name.endswith(".json")]
    found = [Run.model_validate_json(entry.read_bytes()) for entry in documents]
    return {run.id: run for run in sorted(found, key=lambda run: run.created_at, reverse=True)}
