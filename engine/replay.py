"""A finished run as one sees it step by step: what goes in, which matrices it meets, what the cache gains, what moves.

Columns over the run's steps, from its record alone; the matrices come from the record's own config. No torch, no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from engine import catalogue
from engine.errors import LabError
from engine.ledger import prefill
from engine.record import Run
from engine.spec import Spec, read

MAX_PIECES = 400


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight matrix of the model: inputs k, outputs n, how many layers have one, and whether every row meets it.

    The head meets the last row alone: an engine needs scores for the next token, not for those it was given.
    """

    name: str
    k: int
    n: int
    count: int
    every_row: bool = True


def spec_of(run: Run) -> Spec | None:
    """The dimensions of the model that ran: its record's config, else the catalogue's; None where neither says."""
    if run.model is None:
        return None
    try:
        return read(run.model.config) if run.model.config else catalogue.load(run.model.id)
    except LabError:
        return None


@lru_cache(maxsize=64)
def matrices(spec: Spec) -> tuple[Matrix, ...]:
    """Each kind of matrix a prefill of two tokens meets, in the order of the pass."""
    found: dict[tuple[str, int, int, bool], int] = {}
    for op in prefill(spec, 2).of_kind("linear"):
        if op.k and op.n:
            shape = (op.name, int(op.k), int(op.n), op.name != "lm_head" or op.rows > 1)
            found[shape] = found.get(shape, 0) + int(op.count)
    return tuple(Matrix(name, k, n, count, every) for (name, k, n, every), count in found.items())


def columns(run: Run) -> dict[str, list[Any]]:
    """The run's steps as columns. Bytes by kind are pairs [read, written]; times in nanoseconds.

    `enters` holds what goes in: the prompt's pieces in prefill (cut at MAX_PIECES), then the token written before.
    """
    steps = run.steps
    before = [step.text for step in steps[:-1]]
    prompt = run.prompt.pieces[:MAX_PIECES] if run.prompt is not None else []
    return {
        "phase": [step.phase for step in steps],
        "rows": [step.tokens for step in steps],
        "context": [step.context for step in steps],
        "enters": [prompt, *([text] for text in before)] if steps else [],
        "leaves": [step.text for step in steps],
        "id": [step.token_ids[0] if step.token_ids else None for step in steps],
        "time_ns": [step.time_ns for step in steps],
        "expected_ns": [step.predicted_ns.expected for step in steps],
        "roof_ns": [step.predicted_ns.measured_roof for step in steps],
        "bound": [step.bound for step in steps],
        "weights": [[step.bytes.weights, 0] for step in steps],
        "kv": [[step.bytes.kv_read, step.bytes.kv_write] for step in steps],
        "state": [[step.bytes.state_read, step.bytes.state_write] for step in steps],
        "conv": [[step.bytes.conv_read, step.bytes.conv_write] for step in steps],
        "logits": [[0, step.bytes.logits] for step in steps],
        "kv_filled": [step.resident_bytes.kv_filled for step in steps],
        "kv_allocated": [step.resident_bytes.kv_allocated for step in steps],
        "state_held": [step.resident_bytes.state for step in steps],
    }
