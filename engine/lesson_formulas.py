"""The lab's formulas with their terms and current values: for a model, a device, a prompt, a context and a batch.

Each is checked to hold to the last byte: what the ledger counts is what the formula's terms give. Knows no page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from engine.ledger import Convention, Formats, decode, resident
from engine.predict import DeviceLike, predict
from engine.spec import Spec

Unit = Literal["s", "flops", "bytes", "flops_per_s", "bytes_per_s", "tokens_per_s", "flop_per_byte", "count"]


@dataclass(frozen=True, slots=True)
class Value:
    """One term: its number and unit."""

    number: float
    unit: Unit


@dataclass(frozen=True, slots=True)
class Formula:
    """result follows from terms, by the formula that `id` names.

    What a sequence moves in a step and what it holds in memory are terms of different names: a state is held once,
    but read and written back at every step.
    """

    id: str
    result: Value
    terms: dict[str, Value]


def formulas(
    spec: Spec,
    device: DeviceLike,
    *,
    formats: Formats,
    convention: Convention,
    preset: str,
    prompt: int,
    context: int,
    batch: int,
) -> list[Formula]:
    """Every formula for one case, the decode step's where a step is meant.

    Raises:
        LabError: what `predict` refuses.
    """
    document = predict(
        spec,
        device,
        preset=preset,
        weights=formats.weights,
        kv=formats.kv,
        state=formats.state,
        prompt_tokens=prompt,
        context=context,
        batch=batch,
    )
    found = [*_roofline(document, device), *_bytes(document, spec, formats, convention)]
    memory = _memory(document, spec, formats, convention)
    return [*found, memory] if memory is not None else found


def _roofline(document: dict[str, Any], device: DeviceLike) -> list[Formula]:
    step = document["decode"]
    flops, moved = Value(step["flops"], "flops"), Value(step["bytes"]["total"], "bytes")
    ridge = Value(document["ridge_flop_per_byte"], "flop_per_byte")
    peak = Value(document["ridge_flop_per_byte"] * device.bandwidth_bytes_per_s, "flops_per_s")
    bandwidth = Value(device.bandwidth_bytes_per_s, "bytes_per_s")
    time = Value(step["time_s"], "s")
    batch = Value(step["batch"], "count")
    return [
        Formula("step_time", time, {"FLOPs": flops, "π": peak, "bytes": moved, "β": bandwidth}),
        Formula("intensity", Value(step["intensity"], "flop_per_byte"), {"FLOPs": flops, "bytes": moved}),
        Formula("ridge", ridge, {"π": peak, "β": bandwidth}),
        Formula("rate", Value(step["tokens_per_s"], "tokens_per_s"), {"B": batch, "t": time}),
    ]


def _bytes(document: dict[str, Any], spec: Spec, formats: Formats, convention: Convention) -> list[Formula]:
    step = document["decode"]
    batch, context = step["batch"], step["context"]
    moved = step["bytes"]
    own = decode(spec, context + 1, formats=formats, convention=convention).bytes
    kv = own.kv_read + own.kv_write
    states = own.state_read + own.state_write + own.conv_read + own.conv_write
    terms = {
        "W": Value(moved["weights"], "bytes"),
        "B": Value(batch, "count"),
        "KV moved": Value(kv, "bytes"),
        "state moved": Value(states, "bytes"),
        "logits": Value(moved["logits"] / batch, "bytes"),
    }
    return [Formula("step_bytes", Value(moved["total"], "bytes"), terms)]


def _memory(document: dict[str, Any], spec: Spec, formats: Formats, convention: Convention) -> Formula | None:
    capacity, context = document["capacity"], document["decode"]["context"]
    memory = (capacity["usable_memory_bytes"] if convention.usable_memory else None) or capacity["memory_bytes"]
    if memory is None or capacity["max_batch"] is None:
        return None
    held = resident(spec, max_tokens=context, formats=formats, convention=convention)
    terms = {
        "M": Value(memory, "bytes"),
        "C": Value(capacity["resident_weight_bytes"], "bytes"),
        "KV held": Value(held.kv_allocated, "bytes"),
        "state held": Value(held.state + held.conv, "bytes"),
    }
    return Formula("largest_batch", Value(capacity["max_batch"], "count"), terms)
