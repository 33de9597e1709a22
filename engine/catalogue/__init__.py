"""Config facts of public checkpoints and of the lab's own models: one JSON file each, with its source.

`load(id)` gives the Spec. An id is the checkpoint's Hub name ("Qwen/Qwen3.8-27B"), or one word for the lab's own.
Knows no weights: whether a model can run here is the checkpoint module's business.
"""

from __future__ import annotations

import copy
import difflib
import json
from functools import cache
from importlib import resources
from typing import Any

from engine.errors import LabError
from engine.spec import Spec, read

OWN = ("smollm2-135m", "tiny-3.7m")


@cache
def entries() -> dict[str, dict[str, Any]]:
    """Every entry by id: "id", "source", "config", and where known "published_parameters" and notes."""
    found = [
        json.loads(file.read_text(encoding="utf-8"))
        for file in resources.files(__name__).iterdir()
        if file.name.endswith(".json")
    ]
    return {
        entry["id"]: entry for entry in sorted(found, key=lambda entry: (entry["id"] not in OWN, entry["id"].lower()))
    }


def ids() -> list[str]:
    """All ids, the lab's own first, then by name."""
    return list(entries())


def entry(model_id: str) -> dict[str, Any]:
    """One entry with its source and notes; a copy.

    Raises:
        LabError: no such id.
    """
    if model_id not in entries():
        near = difflib.get_close_matches(model_id, entries(), n=1, cutoff=0.7)
        if near:
            raise LabError(
                "There is no model {model}; is {near} meant? `python -m engine models` lists what can be chosen.",
                model=model_id,
                near=near[0],
            )
        raise LabError("There is no model {model}; `python -m engine models` lists what can be chosen.", model=model_id)
    return copy.deepcopy(entries()[model_id])


def config(model_id: str) -> dict[str, Any]:
    """The model's config.json as data; a copy.

    Raises:
        LabError: no such id.
    """
    found: dict[str, Any] = entry(model_id)["config"]
    return found


@cache
def load(model_id: str) -> Spec:
    """The model's Spec.

    Raises:
        LabError: no such id.
    """
    return read(config(model_id))
