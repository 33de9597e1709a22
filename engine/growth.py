"""How bytes and speed grow: with the batch, and with the context. Arrays over a whole axis at once, from a Spec.

Answers what the pages *Batch and memory* and *KV and state* draw, and whether one batch fits. Held is what has to be
in memory; moved is what one step reads and writes. Knows no torch and measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.ledger import Convention, Formats, Resident, decode, resident
from engine.ledger.convention import named
from engine.predict import DeviceLike
from engine.roofline import Grid, Roof, Sweep, replaced_kv_bytes_per_position, sweep
from engine.spec import Spec


@dataclass(frozen=True, slots=True)
class Room:
    """A batch against a device's memory. `over_bytes` is 0 where it fits; memory_bytes None where that is unknown."""

    held: Resident
    per_request_bytes: int
    memory_bytes: int | None
    over_bytes: int
    most: int | None


@dataclass(frozen=True, slots=True)
class BatchGrowth:
    """Decode steps over the batch: their roofline, and what they hold by kind."""

    batch: Grid
    steps: Sweep
    weights: Grid
    kv: Grid
    state: Grid
    conv: Grid


@dataclass(frozen=True, slots=True)
class ContextGrowth:
    """Bytes of one sequence over its cached positions, beside the weights.

    Held: kv_held, state_held, and kv_replaced, what the recurrent layers would hold were they attention (None where a
    model has not both kinds). Moved in one decode step: kv_moved, state_moved. States include their conv columns.
    parts_held, parts_moved: the same bytes by kind, each once: "kv", "window", "latent", "state", "conv".
    """

    context: Grid
    kv_held: Grid
    state_held: Grid
    kv_replaced: Grid | None
    kv_moved: Grid
    state_moved: Grid
    parts_held: Mapping[str, Grid]
    parts_moved: Mapping[str, Grid]

    @property
    def held(self) -> Grid:
        """Everything held."""
        return self.kv_held + self.state_held

    @property
    def moved(self) -> Grid:
        """Everything moved."""
        return self.kv_moved + self.state_moved


def by_kind(moved: Mapping[str, Any], parts: Mapping[str, Any]) -> dict[str, Any]:
    """Bytes of a step, as the lab's JSON has them, by what they are of: read and written together, each byte once."""
    both = {kind: moved[f"{kind}_read"] + moved[f"{kind}_write"] for kind in ("kv", "state", "conv")}
    experts, window, latent = (parts[part] for part in ("experts", "window", "latent"))
    return {
        "weights": moved["weights"] - experts,
        "experts": experts,
        "kv": both["kv"] - window - latent,
        "window": window,
        "latent": latent,
        "state": both["state"],
        "conv": both["conv"],
        "logits": moved["logits"],
    }


def room(
    spec: Spec, device: DeviceLike, *, batch: int, context: int, formats: Formats, convention: str | Convention
) -> Room:
    """Whether `batch` sequences of `context` positions fit beside the whole checkpoint, and the most that would."""
    counted = named(convention)
    held = resident(spec, batch=batch, max_tokens=context, formats=formats, convention=counted, whole_checkpoint=True)
    usable = device.usable_memory_bytes if counted.usable_memory else None
    memory = usable if usable is not None else device.memory_bytes
    each = held.per_batch // batch
    most = None if memory is None or not each else max(0, int((memory - held.weights) // each))
    return Room(held, each, memory, 0 if memory is None else max(0, held.total - memory), most)


def over_batch(
    spec: Spec,
    roof: Roof,
    batches: Sequence[int],
    *,
    context: int,
    formats: Formats,
    convention: str | Convention,
) -> BatchGrowth:
    """Decode steps of `context` cached positions each, over the batch."""
    batch = np.asarray(batches, dtype=np.float64)
    counted = named(convention)
    steps = sweep(spec, roof, batch=batch, context=context + 1, formats=formats, convention=counted)
    held = resident(spec, batch=batch, max_tokens=context, formats=formats, convention=counted, whole_checkpoint=True)
    kinds = (held.weights, held.kv_allocated, held.state, held.conv)
    return BatchGrowth(batch, steps, *(_over(batch, kind) for kind in kinds))


@lru_cache(maxsize=128)
def over_context(
    spec: Spec, contexts: tuple[int, ...], *, formats: Formats, convention: str | Convention
) -> ContextGrowth:
    """Bytes of one sequence over its cached positions. Kept for who asks again: do not write into the arrays."""
    cached = np.asarray(contexts, dtype=np.float64)
    counted = named(convention)
    held = resident(spec, max_tokens=cached, formats=formats, convention=counted)
    step = decode(spec, cached + 1, formats=formats, convention=counted)
    moved, by = step.bytes, by_kind(step.bytes.as_dict(), step.parts)
    parts = {
        "kv": held.kv_allocated - held.window - held.latent,
        "window": held.window,
        "latent": held.latent,
        "state": held.state,
        "conv": held.conv,
    }
    replaced = replaced_kv_bytes_per_position(spec, formats=formats)
    return ContextGrowth(
        context=cached,
        kv_held=_over(cached, held.kv_allocated),
        state_held=_over(cached, held.state + held.conv),
        kv_replaced=None if replaced is None else replaced * cached,
        kv_moved=_over(cached, moved.kv_read + moved.kv_write),
        state_moved=_over(cached, moved.state_read + moved.state_write + moved.conv_read + moved.conv_write),
        parts_held={kind: _over(cached, amount) for kind, amount in parts.items()},
        parts_moved={kind: _over(cached, by[kind]) for kind in parts},
    )


def _over(axis: Grid, amount: npt.ArrayLike) -> Grid:
    return np.broadcast_to(np.asarray(amount, dtype=np.float64), axis.shape)
