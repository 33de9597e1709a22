"""What a ledger holds: Traffic (bytes by kind), Op (one kind of operation of a step), StepLedger (the step).

An amount is a Python int, exact; where a whole grid is asked for at once it is a float64 array instead, and every
formula works on both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

# int, or numpy array when a grid of steps is counted at once.
Amount: TypeAlias = Any

Kind = Literal["linear", "attention", "norm", "rotary", "elementwise", "embedding", "conv", "recurrence"]
Memory = Literal["kv", "window", "latent"]
FIELDS = ("weights", "kv_read", "kv_write", "state_read", "state_write", "conv_read", "conv_write", "logits")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes moved, by kind."""

    weights: Amount = 0
    kv_read: Amount = 0
    kv_write: Amount = 0
    state_read: Amount = 0
    state_write: Amount = 0
    conv_read: Amount = 0
    conv_write: Amount = 0
    logits: Amount = 0

    @property
    def total(self) -> Amount:
        """Everything that moves."""
        return self.weights + self.per_request

    @property
    def per_request(self) -> Amount:
        """What a larger batch does not share: all but the weights."""
        moved = self.kv_read + self.kv_write + self.state_read + self.state_write
        return moved + self.conv_read + self.conv_write + self.logits

    @property
    def distinct(self) -> Amount:
        """Bytes of memory touched: state and conv state are read and written in place, so they count once."""
        state = greatest(self.state_read, self.state_write)
        conv = greatest(self.conv_read, self.conv_write)
        return self.weights + self.kv_read + self.kv_write + state + conv + self.logits

    def as_dict(self) -> dict[str, Amount]:
        """The nine numbers of the lab's JSON: the eight kinds and "total"."""
        return {name: getattr(self, name) for name in FIELDS} | {"total": self.total}


@dataclass(frozen=True, slots=True)
class Op:
    """One operation of a step, for all `count` of its occurrences together.

    rows: rows of one occurrence. A linear maps `k` numbers a row to `n`; anything else works on `n` numbers a row.
    context: positions attended, for attention. distinct: experts read together, for routed ones.
    memory: what kind of cache its `kv` bytes are of.
    Bytes are weights, cache, state and logits: activations between ops are not counted (they stay in cache at decode;
    accounting them is the calibration's business).
    """

    name: str
    kind: Kind
    count: int
    rows: Amount
    k: int
    n: int
    flops: Amount = 0
    bytes: Traffic = field(default_factory=Traffic)
    context: Amount = 0
    distinct: Amount = 0
    memory: Memory = "kv"


@dataclass(frozen=True)
class StepLedger:
    """All ops of one prefill or decode step.

    tokens: rows per sequence. context: positions attended, the new ones included.
    touched: bytes of memory touched, where weights are read more than once; None where all are read once.
    """

    phase: Literal["prefill", "decode"]
    convention: str
    tokens: Amount
    context: Amount
    batch: Amount
    ops: tuple[Op, ...]
    touched: Amount | None = None

    @cached_property
    def flops(self) -> Amount:
        """FLOPs of the step, whole batch. One multiply-add is two."""
        return sum(op.flops for op in self.ops)

    @cached_property
    def bytes(self) -> Traffic:
        """Bytes the step moves, by kind, whole batch."""
        return Traffic(*(sum(getattr(op.bytes, name) for op in self.ops) for name in FIELDS))

    @cached_property
    def parts(self) -> dict[str, Amount]:
        """Bytes that are part of others and worth a name: routed `experts` of the weights; of the KV cache, read and
        written together, what lies in a sliding `window` and what is a compressed `latent`.
        """
        cached = {kind: [op for op in self.ops if op.memory == kind] for kind in ("window", "latent")}
        moved = {kind: sum(op.bytes.kv_read + op.bytes.kv_write for op in ops) for kind, ops in cached.items()}
        return {"experts": sum(op.bytes.weights for op in self.ops if op.name.startswith("experts_")), **moved}

    @property
    def working_set_bytes(self) -> Amount:
        """Bytes of memory the step touches: what has to fit in a cache for the step to be served by it."""
        return self.bytes.distinct if self.touched is None else self.touched

    @property
    def intensity(self) -> Amount:
        """FLOPs per byte."""
        return self.flops / self.bytes.total

    def of_kind(self, kind: Kind) -> tuple[Op, ...]:
        """The ops of one kind."""
        return tuple(op for op in self.ops if op.kind == kind)


def least(first: Amount, second: Amount) -> Amount:
    """The smaller of two amounts, element by element for arrays."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def greatest(first: Amount, second: Amount) -> Amount:
    """The larger of two amounts, element by element for arrays."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)


def whole(amount: Amount) -> Amount:
    """An expectation rounded to a whole amount."""
    return np.rint(amount) if isinstance(amount, np.ndarray) else round(amount)
