"""`random:<catalogue id>[@layers=N]`: a checkpoint's true shapes, whole or its first layers, with made-up values.

Time and bytes of such a model are real; its text means nothing. Knows names, configs and sizes; makes no values
(engine.random_weights does).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from engine import catalogue, spec
from engine.errors import LabError
from engine.spec.cut import first_layers

PREFIX = "random:"
OFFERED = ("random:Qwen/Qwen3.8-27B@layers=4", "random:Qwen/Qwen3-0.6B", "random:Qwen/Qwen3-30B-A3B@layers=2")
"""What a visitor of the web app may run: the lesson's anchor in part, a whole small model, a mixture of experts."""

_NAME = re.compile(r"random:(?P<model>[^@]+)(?:@layers=(?P<layers>[0-9]{1,1000}))?")
_QWEN = ("qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text")


def read(name: str) -> tuple[dict[str, Any], spec.Spec]:
    """The config and the Spec that a name stands for; the config is the caller's own.

    Raises:
        LabError: not such a name, no such catalogue entry, or layers that it does not have.
    """
    model, layers = _parts(name)
    config = catalogue.config(model)
    if layers is None:
        return config, catalogue.load(model)
    most = catalogue.load(model).num_layers
    if not 1 <= layers <= most:
        raise LabError("{model} has {most} layers; ask for 1 to {most} of them.", model=model, most=most)
    return first_layers(config, layers), _cut(model, layers)


def canonical(name: str) -> str:
    """The one spelling of a name: layers=04 is layers=4.

    Raises:
        LabError: not such a name.
    """
    model, layers = _parts(name)
    return f"{PREFIX}{model}" + ("" if layers is None else f"@layers={layers}")


def speaks_qwen(model: spec.Spec) -> bool:
    """Whether its vocabulary is that of Qwen3.5 to 3.8, which the lab has."""
    return model.model_type in _QWEN


def check_fits(name: str, whole: spec.Spec, needs: Callable[[spec.Spec], int], free_bytes: int) -> None:
    """Let pass what fits into memory.

    Args:
        name: what was asked for, of this module or not.
        whole: its Spec.
        needs: the bytes a Spec takes.
        free_bytes: those there are.

    Raises:
        LabError: it does not; the sentence names the most layers that do.
    """
    needed = needs(whole)
    if needed <= free_bytes or not name.startswith(PREFIX):
        return
    model, _ = _parts(name)
    most = _most_layers(lambda layers: needs(_cut(model, layers)), whole.num_layers, free_bytes)
    sizes = {"needed": f"{needed / 1e9:.2f}", "free": f"{free_bytes / 1e9:.2f}"}
    if most == 0:
        raise LabError(
            "{model} needs {needed} GB of memory and {free} GB are free: not even one of its layers fits. "
            "Another dtype may take less.",
            model=name,
            **sizes,
        )
    raise LabError(
        "{model} needs {needed} GB of memory and {free} GB are free: {part} is the most that fits "
        "({part_needed} GB). Another dtype may take less.",
        model=name,
        part=f"{PREFIX}{model}@layers={most}",
        part_needed=f"{needs(_cut(model, most)) / 1e9:.2f}",
        **sizes,
    )


def _most_layers(needs: Callable[[int], int], limit: int, free_bytes: int) -> int:
    """The most layers, below `limit`, whose bytes are free; 0 where not one's are."""
    low, high = 0, limit - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needs(middle) <= free_bytes else (low, middle - 1)
    return low


def _parts(name: str) -> tuple[str, int | None]:
    found = _NAME.fullmatch(name)
    if found is None:
        raise LabError(
            "{name} is not random:ID or random:ID@layers=N, with the id of a model that predictions know.",
            name=name[:200],
        )
    return found["model"], int(found["layers"]) if found["layers"] else None


@lru_cache(maxsize=128)
def _cut(model: str, layers: int) -> spec.Spec:
    return spec.read(first_layers(catalogue.config(model), layers))
