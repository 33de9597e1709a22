"""Writes a step's ops one by one, in the order the engine runs them. One place for what the conventions switch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.ledger.convention import Convention
from engine.ledger.formats import Formats
from engine.ledger.ops import Amount, Kind, Memory, Op, Traffic, whole
from engine.ledger.plan import Ops


@dataclass(frozen=True, slots=True)
class Step:
    """The step being counted, or one pass of it: a prompt may be read in several, each behind what is cached.

    tokens: per sequence; context: positions attended, the new ones included.
    alike: the sequences are copies of one another, so that their tokens choose the same experts.
    first, last: of a prompt's passes, whether it starts from nothing, and whether it gives logits.
    """

    phase: Literal["prefill", "decode"]
    tokens: Amount
    context: Amount
    batch: Amount
    formats: Formats
    convention: Convention
    alike: bool = False
    first: bool = True
    last: bool = True

    @property
    def rows(self) -> Amount:
        """Rows every linear of the trunk sees."""
        return self.tokens * self.batch

    @property
    def choices(self) -> Amount:
        """Tokens that choose their experts each for itself."""
        return self.tokens if self.alike else self.rows

    @property
    def cached(self) -> Amount:
        """Positions that were in the cache before."""
        return self.context - self.tokens


@dataclass(slots=True)
class Writer:
    """Collects the ops of one distinct layer (occurring `count` times) or of what stands outside the layers."""

    step: Step
    stored: Ops
    count: int = 1
    ops: list[Op] = field(default_factory=list)

    def linear(self, name: str, rows: Amount | None = None, *, logits: Amount = 0) -> None:
        """A matrix multiply of `rows` rows with the matrices stored under `name`, if there are any."""
        if name not in self.stored:
            return
        found = self.stored[name]
        rows = self.step.rows if rows is None else rows
        per_row = 2 * (found.k * found.n + self._vector_macs(found.vector_parameters))
        moved = Traffic(weights=found.bytes * self.count, logits=logits)
        self.ops.append(Op(name, "linear", self.count, rows, found.k, found.n, per_row * rows * self.count, moved))

    def experts(self, name: str, top_k: int, distinct: Amount) -> None:
        """The same for routed experts: every token passes `top_k` of them, `distinct` are read in the step."""
        found = self.stored[name]
        rows = self.step.rows * top_k
        per_row = 2 * (found.k * found.n + self._vector_macs(found.vector_parameters))
        moved = Traffic(weights=whole(distinct * found.bytes) * self.count)
        flops = per_row * rows * self.count
        self.ops.append(Op(name, "linear", self.count, rows, found.k, found.n, flops, moved, distinct=distinct))

    def norm(self, name: str, width: int, rows: Amount | None = None) -> None:
        """A norm over `width`. Those of hidden size are left out of the lesson's bytes."""
        counts = self.step.convention.hidden_norms
        weights = self.stored[name].vector_bytes * self.count if counts else 0
        self.ops.append(
            Op(name, "norm", self.count, self.step.rows if rows is None else rows, 0, width, 0, Traffic(weights))
        )

    def between(
        self,
        name: str,
        kind: Kind,
        width: int,
        *,
        rows: Amount | None = None,
        flops: Amount = 0,
        context: Amount = 0,
        moved: Traffic | None = None,
        memory: Memory = "kv",
    ) -> None:
        """Anything that is not a linear: `flops` and `moved` are those of one occurrence.

        The vectors stored under `name` are read, and multiplied where the convention counts them so.
        """
        rows = self.step.rows if rows is None else rows
        count = self.count
        vectors = self.stored.get(name)
        if vectors is not None:
            flops = flops + 2 * self._vector_macs(vectors.vector_parameters) * self.step.rows
        weights = vectors.vector_bytes if vectors is not None else 0
        moved = _scaled(moved, weights, count)
        self.ops.append(Op(name, kind, count, rows, 0, width, flops * count, moved, context, memory=memory))

    def _vector_macs(self, parameters: int) -> int:
        return parameters if self.step.convention.vector_flops else 0


def _scaled(moved: Traffic | None, weights: int, count: int) -> Traffic:
    if moved is None:
        return Traffic(weights=weights * count)
    return Traffic(
        (moved.weights + weights) * count,
        moved.kv_read * count,
        moved.kv_write * count,
        moved.state_read * count,
        moved.state_write * count,
        moved.conv_read * count,
        moved.conv_write * count,
    )
