"""A roof over a ledger: the least time a step can take, which limit binds, what fits, and where limits cross.

The roofline model of Williams, Waterman and Patterson (2009): a step takes at least its FLOPs over the peak and at
least its bytes over the bandwidth. Both are taken over the whole step; the sum of per-op maxima is larger, never
smaller. Knows ledgers and two numbers of a device; knows no device by name and measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from engine.errors import LabError
from engine.ledger import ENGINE, Amount, Convention, Formats, StepLedger, decode, prefill, resident
from engine.ledger.formats import BF16
from engine.spec import Attention, LatentAttention, Spec

Bound = Literal["memory", "compute"]
Grid = npt.NDArray[np.float64]

# Prompts up to this length are looked up in one array; longer ones are searched for.
PROMPTS = 8192
MOST_TOKENS = 1 << 40


@dataclass(frozen=True, slots=True)
class Roof:
    """What a device can do at most: FLOP/s of one dtype, and bytes/s of its memory (or of the cache a step fits in)."""

    flops_per_s: float
    bytes_per_s: float

    @property
    def ridge_flop_per_byte(self) -> float:
        """The intensity at which both limits meet."""
        return self.flops_per_s / self.bytes_per_s

    def attainable_flops_per_s(self, intensity: float) -> float:
        """The roof over an intensity in FLOP/byte: what the bytes can feed, and never more than the peak."""
        return min(self.flops_per_s, intensity * self.bytes_per_s)

    def least_ns(self, flops: float, moved_bytes: float) -> float:
        """The least time of any work: the larger of its FLOPs over the peak and its bytes over the bandwidth."""
        return float(max(flops / self.flops_per_s, moved_bytes / self.bytes_per_s) * 1e9)


@dataclass(frozen=True)
class Sweep:
    """A grid of decode steps: every field has the broadcast shape of the batches and contexts asked for.

    time_s is the floor of the step; resident_bytes what weights, caches and states take.
    """

    time_s: Grid
    tokens_per_s: Grid
    flops: Grid
    bytes: Grid
    intensity: Grid
    compute_bound: npt.NDArray[np.bool_]
    resident_bytes: Grid


def compute_ns(step: StepLedger, roof: Roof) -> float:
    """The FLOPs of the step over the peak."""
    return float(step.flops / roof.flops_per_s * 1e9)


def memory_ns(step: StepLedger, roof: Roof) -> float:
    """The bytes of the step over the bandwidth."""
    return float(step.bytes.total / roof.bytes_per_s * 1e9)


def floor_ns(step: StepLedger, roof: Roof) -> float:
    """The least time of the step: the larger of its two limits."""
    return max(compute_ns(step, roof), memory_ns(step, roof))


def bound(step: StepLedger, roof: Roof) -> Bound:
    """Which of the two limits is the larger; memory where they are equal."""
    return "compute" if compute_ns(step, roof) > memory_ns(step, roof) else "memory"


def per_op_floor_ns(step: StepLedger, roof: Roof) -> float:
    """The sum of every op's own floor: what a step takes at least when its ops do not overlap."""
    limits = (max(op.flops / roof.flops_per_s, op.bytes.total / roof.bytes_per_s) for op in step.ops)
    return float(sum(limits) * 1e9)


def largest_batch(
    spec: Spec,
    memory_bytes: float,
    context: int,
    *,
    formats: Formats = BF16,
    convention: str | Convention = ENGINE,
) -> int:
    """Sequences of `context` positions that fit beside the whole checkpoint; 0 where not one does."""
    held = resident(spec, max_tokens=context, formats=formats, convention=convention, whole_checkpoint=True)
    return max(0, int((memory_bytes - held.weights) // held.per_batch)) if held.per_batch else 0


def limit_intensity(step: StepLedger) -> float:
    """FLOPs per byte that a decode step nears as its batch grows: what no sharing of weights can exceed.

    Everything but the weights grows with the batch, so a step of any batch tells. Infinite where a sequence moves no
    bytes of its own.
    """
    own = step.bytes.per_request + sum(op.bytes.weights for op in step.of_kind("embedding"))
    return float(step.flops / own) if own else float("inf")


@lru_cache(maxsize=512)
def kv_equals_state_context(
    spec: Spec, *, formats: Formats = BF16, convention: str | Convention = ENGINE
) -> int | None:
    """The first number of cached positions whose KV read is as much as the states' traffic; None where never."""

    def kv_outweighs(cached: int) -> bool:
        moved = decode(spec, cached + 1, formats=formats, convention=convention).bytes
        return bool(moved.kv_read >= moved.state_read + moved.state_write + moved.conv_read + moved.conv_write)

    once = decode(spec, 2, formats=formats, convention=convention).bytes
    if not once.state_write or not once.kv_read:
        return None
    return _first(kv_outweighs, MOST_TOKENS)


@lru_cache(maxsize=512)
def replaced_kv_bytes_per_position(spec: Spec, *, formats: Formats = BF16) -> float | None:
    """What the recurrent layers, were they attention like the others, would store for each position.

    None where a model has not both kinds of layers.
    """
    held = resident(spec, max_tokens=1, formats=formats)
    attending = sum(count for layer, count in spec.groups if isinstance(layer.mixer, Attention | LatentAttention))
    recurrent = sum(count for layer, count in spec.groups if layer.mixer is not None) - attending
    if not recurrent or not attending:
        return None
    replaced: float = recurrent * held.kv_allocated / attending
    return replaced


@lru_cache(maxsize=512)
def state_equals_replaced_kv_context(spec: Spec, *, formats: Formats = BF16) -> int | None:
    """Positions at which the recurrent layers, were they attention, would store as much as their states take.

    None where a model has not both kinds of layers.
    """
    replaced = replaced_kv_bytes_per_position(spec, formats=formats)
    if replaced is None:
        return None
    positions: float = resident(spec, max_tokens=1, formats=formats).state / replaced
    return round(positions)


@lru_cache(maxsize=2048)
def compute_bound_prompt_tokens(
    spec: Spec, roof: Roof, *, formats: Formats = BF16, convention: Convention = ENGINE
) -> int | None:
    """The shortest prompt, within the model's context, whose prefill is bound by compute; None where none is."""
    known = _prompt_intensity(spec, formats, convention)
    above = known > roof.ridge_flop_per_byte
    if above.any():
        return int(above.argmax()) + 1
    if spec.max_position <= PROMPTS:
        return None

    def is_compute_bound(tokens: int) -> bool:
        return bound(prefill(spec, tokens, formats=formats, convention=convention), roof) == "compute"

    return _first(is_compute_bound, spec.max_position)


def sweep(
    spec: Spec,
    roof: Roof,
    *,
    batch: npt.ArrayLike,
    context: npt.ArrayLike,
    formats: Formats = BF16,
    convention: str | Convention = ENGINE,
) -> Sweep:
    """Decode steps over batches and contexts (positions attended), as numpy broadcasts them, counted all at once.

    Raises:
        LabError: a batch or a context below 1.
    """
    batches, contexts = np.asarray(batch, dtype=np.float64), np.asarray(context, dtype=np.float64)
    if batches.min(initial=1) < 1 or contexts.min(initial=1) < 1:
        raise LabError("Every batch and every context has to be at least 1.")
    step = decode(spec, contexts, batch=batches, formats=formats, convention=convention)
    held = resident(
        spec, batch=batches, max_tokens=contexts, formats=formats, convention=convention, whole_checkpoint=True
    )
    return _swept(step, held.total, roof, tokens=batches)


def prompt_sweep(
    spec: Spec,
    roof: Roof,
    *,
    tokens: npt.ArrayLike,
    formats: Formats = BF16,
    convention: str | Convention = ENGINE,
) -> Sweep:
    """Prefills of one prompt over its length.

    Raises:
        LabError: a length below 1.
    """
    lengths = np.asarray(tokens, dtype=np.float64)
    if lengths.min(initial=1) < 1:
        raise LabError("Every prompt has to be at least 1 token long.")
    step = prefill(spec, lengths, formats=formats, convention=convention)
    held = resident(spec, max_tokens=lengths, formats=formats, convention=convention, whole_checkpoint=True)
    return _swept(step, held.total, roof, tokens=lengths)


def _swept(step: StepLedger, held: Amount, roof: Roof, *, tokens: Grid) -> Sweep:
    flops, moved, kept, tokens = np.broadcast_arrays(step.flops, step.bytes.total, held, tokens)
    compute, memory = flops / roof.flops_per_s, moved / roof.bytes_per_s
    time_s = np.maximum(compute, memory)
    return Sweep(
        time_s=time_s,
        tokens_per_s=tokens / time_s,
        flops=flops,
        bytes=moved,
        intensity=flops / moved,
        compute_bound=compute > memory,
        resident_bytes=kept,
    )


@lru_cache(maxsize=256)
def _prompt_intensity(spec: Spec, formats: Formats, convention: Convention) -> npt.NDArray[Any]:
    """Intensity of prefill at 1, 2, 3 ... tokens. It knows no device, so that a hundred devices can share it."""
    lengths = np.arange(1, min(PROMPTS, spec.max_position) + 1, dtype=np.float64)
    step = prefill(spec, lengths, formats=formats, convention=convention)
    return np.asarray(step.flops / step.bytes.total)


def _first(holds: Callable[[int], bool], most: int) -> int | None:
    """The smallest number from 1 to `most` for which a condition holds that stays true once it is."""
    if not holds(most):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
