"""Which step of the path an address means, and the address of a step.

A step's id is its address (`?step=batch`) and permanent. One that was renamed is listed in ALIASES; any other that is
not known leads to the nearest.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from pages._lesson.steps import BY_ID, STEPS, Step

# Other names a step goes by, earlier ones included.
ALIASES = {
    "start": "question",
    "steps": "request",
    "guess": "first-guess",
    "compute": "first-guess",
    "bytes": "where-it-fails",
    "phases": "two-phases",
    "shapes": "one-matrix",
    "matrix": "one-matrix",
    "memory": "state-and-kv",
    "state": "state-and-kv",
    "devices": "misconceptions",
    "map": "still-open",
    "open": "still-open",
}


@dataclass(frozen=True)
class Found:
    """The step an address means. asked: what it asked for, where that is no step's id or number."""

    step: Step
    asked: str | None = None


def find(raw: str) -> Found:
    """The step of an address: by its id, its number, an earlier name, or the nearest there is."""
    name = raw.strip().lower()[:60]
    if name in BY_ID:
        return Found(BY_ID[name])
    if name.isascii() and name.isdigit():
        number = min(max(int(name), 1), len(STEPS))
        return Found(STEPS[number - 1], None if number == int(name) else name)
    if name in ALIASES:
        return Found(BY_ID[ALIASES[name]], name)
    near = difflib.get_close_matches(name, [*BY_ID, *ALIASES], n=1, cutoff=0.5)
    nearest = ALIASES.get(near[0], near[0]) if near else STEPS[0].id
    return Found(BY_ID[nearest], name)


def query(step: Step, language: str) -> dict[str, str]:
    """The prepared settings of a step, with the step itself."""
    return {"step": step.id, **step.query, "lang": language}
