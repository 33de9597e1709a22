"""A prompt read in several passes: the passes, and the one step they make together.

Each pass reads the weights again, and the keys, values and states of those before it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from engine.chunks import chunk_lengths
from engine.ledger.ops import FIELDS, Op, StepLedger, Traffic
from engine.ledger.writer import Step


def passes(step: Step, rows: int) -> list[Step]:
    """The passes of a prefill, each of at most `rows` tokens of all sequences together."""
    lengths = chunk_lengths(step.tokens, step.batch, rows)
    return [
        replace(step, tokens=length, context=end, first=end == length, last=end == step.tokens)
        for length, end in zip(lengths, accumulate(lengths), strict=True)
    ]


def merged(parts: list[StepLedger]) -> StepLedger:
    """One step of all passes: ops of one size together, in the order in which they first occur."""
    ops: dict[tuple[object, ...], Op] = {}
    for part in parts:
        for op in part.ops:
            key = (op.name, op.rows, op.k, op.n, op.context, op.distinct, op.memory)
            ops[key] = _together(ops[key], op) if key in ops else op
    return replace(
        parts[-1],
        tokens=sum(part.tokens for part in parts),
        ops=tuple(ops.values()),
        touched=max(part.working_set_bytes for part in parts),
    )


def _together(one: Op, other: Op) -> Op:
    moved = Traffic(*(getattr(one.bytes, name) + getattr(other.bytes, name) for name in FIELDS))
    return replace(one, count=one.count + other.count, flops=one.flops + other.flops, bytes=moved)
