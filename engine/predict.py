"""What a model would cost on a device, before any run and without one: the document of `predict --json`.

One prompt's prefill, a decode step of a batch, what fits, and where the limits cross - counted by the ledger under one
convention, timed against the device's datasheet. Knows no torch and measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from engine import catalogue, hardware, roofline
from engine.errors import LabError
from engine.ledger import Convention, Formats, StepLedger, decode, prefill, resident
from engine.ledger.convention import named
from engine.parallel import Link, communication_s, shard
from engine.roofline import Roof
from engine.spec import Spec

PRESETS = ("lesson", "engine")
MOST_TOKENS = 1 << 30
# Peaks tried in turn where a device lists none for the dtype the matrices are multiplied in.
FALLBACKS = {"bf16": ("bf16", "fp16", "fp32"), "fp16": ("fp16", "bf16", "fp32"), "fp32": ("fp32",)}


class DeviceLike(Protocol):
    """What a prediction needs of a device; `engine.hardware.Device` is one."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def bandwidth_bytes_per_s(self) -> float: ...
    @property
    def memory_bytes(self) -> int | None: ...
    @property
    def usable_memory_bytes(self) -> int | None: ...
    def peak_flops_per_s(self, dtype: str) -> float | None: ...


def predict(
    model: str | Spec,
    device: str | DeviceLike,
    *,
    prompt_tokens: int = 4,
    context: int = 4096,
    batch: int = 1,
    preset: str = "engine",
    weights: str | None = None,
    kv: str | None = None,
    state: str | None = None,
    tp: int = 1,
    link: Link | None = None,
) -> dict[str, Any]:
    """Prefill, decode, capacity and limits as one JSON-ready document.

    Args:
        model: a catalogue id, or a Spec.
        device: a hardware id, or a device.
        prompt_tokens: tokens of the one prompt that prefill reads.
        context: cached positions a decode step reads; the step attends one more, its own.
        batch: sequences of the decode step.
        preset: "lesson" or "engine".
        weights, kv, state: formats; None takes the checkpoint's own.
        tp: devices that share every layer, an estimate (see `engine.parallel`); link: what joins them.

    Raises:
        LabError: an unknown model, device, preset or format, a number out of range, or a device without a peak for
            the dtype.
    """
    spec = catalogue.load(model) if isinstance(model, str) else model
    found = hardware.load(device) if isinstance(device, str) else device
    for name, value in (("prompt tokens", prompt_tokens), ("context", context), ("batch", batch)):
        _check(name, value)
    if preset not in PRESETS:
        raise LabError("There is no preset {preset}; known are {known}.", preset=preset, known=", ".join(PRESETS))
    formats = Formats.own(spec, weights=weights, kv=kv, state=state)
    roof, dtype = roof_of(found, formats)
    case = _Case(spec, shard(spec, tp), found, roof, formats, named(preset), tp, link or Link())
    writing = decode(case.part, context + 1, batch=batch, formats=formats, convention=case.convention)
    return {
        "model": model if isinstance(model, str) else spec.architecture or spec.model_type,
        "hardware": found.id,
        "preset": preset,
        "formats": {"weights": formats.weights, "kv": formats.kv, "state": formats.state, "peak": dtype},
        "ridge_flop_per_byte": roof.ridge_flop_per_byte,
        "params": _parameters(spec),
        "prefill": _prefill(case, prompt_tokens),
        "decode": _decode(case, writing),
        "capacity": _capacity(case, context),
        "limits": _limits(case, writing),
        **(_tensor_parallel(case, prompt_tokens, batch) if tp > 1 else {}),
    }


@dataclass(frozen=True, slots=True)
class _Case:
    """What a prediction is of. `part` is one device's share of the model: the model itself on one device."""

    spec: Spec
    part: Spec
    device: DeviceLike
    roof: Roof
    formats: Formats
    convention: Convention
    devices: int
    link: Link


def roof_of(device: DeviceLike, formats: Formats) -> tuple[Roof, str]:
    """The device's datasheet roof for these formats, and the dtype of its peak.

    Weight-only formats are multiplied in the unquantised dtype, so that dtype's peak counts, never the format's own.

    Raises:
        LabError: no peak to stand by for that dtype or one that can stand in for it.
    """
    wanted = formats.plain_format
    for dtype in FALLBACKS[wanted]:
        peak = device.peak_flops_per_s(dtype)
        if peak is not None:
            return Roof(peak, device.bandwidth_bytes_per_s), dtype
    raise LabError(
        "No peak rate of {device} for {dtype} can be stood by, so its compute limit is unknown; choose another device.",
        device=device.id,
        dtype=wanted,
    )


def _check(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_TOKENS:
        raise LabError(
            "The value of {name} is {value}; it has to be a whole number from 1 to {most}.",
            name=name,
            value=str(value),
            most=MOST_TOKENS,
        )


def _parameters(spec: Spec) -> dict[str, int]:
    counts = spec.parameters
    return {
        "matmul": counts.matmul,
        "trunk": counts.trunk,
        "checkpoint": counts.checkpoint,
        "matmul_all_experts": counts.matmul_all,
    }


def _prefill(case: _Case, tokens: int) -> dict[str, Any]:
    step = prefill(case.part, tokens, formats=case.formats, convention=case.convention)
    timed = _timed(case, step, communication_s(case.spec, tokens, 1, case.devices, case.link))
    return {"tokens": tokens, "time_per_token_s": timed["time_s"] / tokens, **timed}


def _timed(case: _Case, step: StepLedger, communication: float) -> dict[str, Any]:
    """Time and bytes of a step. Both estimates stand beside the larger: compute alone, and bytes alone.

    FLOPs and bytes are those of all devices together, times those of one (they work at the same time).
    """
    return {
        "time_s": roofline.floor_ns(step, case.roof) * 1e-9 + communication,
        "compute_time_s": step.flops / case.roof.flops_per_s,
        "memory_time_s": step.bytes.total / case.roof.bytes_per_s,
        "flops": step.flops * case.devices,
        "bytes": {kind: moved * case.devices for kind, moved in step.bytes.as_dict().items()},
        "parts": {part: moved * case.devices for part, moved in step.parts.items()},
        "intensity": step.intensity,
        "bound": roofline.bound(step, case.roof),
    }


def _decode(case: _Case, step: StepLedger) -> dict[str, Any]:
    batch = step.batch
    timed = _timed(case, step, communication_s(case.spec, batch, batch, case.devices, case.link))
    attention = step.of_kind("attention")
    attended = sum(op.flops for op in attention)
    cached = sum(op.bytes.kv_read + op.bytes.kv_write for op in attention)
    return {
        "context": step.context - 1,
        "batch": batch,
        "tokens_per_s": batch / timed["time_s"],
        **timed,
        "weights_only": _weights_only(case, step),
        "attention": {"intensity": attended / cached if cached else None},
    }


def weights_only(step: StepLedger, convention: Convention) -> tuple[int, int]:
    """FLOPs and bytes that the weights alone ask of a step: no attention over the cache, no update of the states."""
    updates = sum(op.flops for op in step.of_kind("recurrence")) if convention.recurrence != "none" else 0
    return step.flops - sum(op.flops for op in step.of_kind("attention")) - updates, step.bytes.weights


def _weights_only(case: _Case, step: StepLedger) -> dict[str, float]:
    flops, moved = weights_only(step, case.convention)
    compute, memory = flops / case.roof.flops_per_s, moved / case.roof.bytes_per_s
    return {
        "time_s": max(compute, memory),
        "compute_time_s": compute,
        "memory_time_s": memory,
        "intensity": flops / moved,
    }


def _capacity(case: _Case, context: int) -> dict[str, Any]:
    """Memory over all devices; the largest batch is the one that fits beside the weights on each."""
    device = case.device
    counted: dict[str, Any] = {"formats": case.formats, "convention": case.convention}
    held = resident(case.part, max_tokens=context, whole_checkpoint=True, **counted)
    known = case.convention.usable_memory and device.usable_memory_bytes is not None
    memory = device.usable_memory_bytes if known else device.memory_bytes
    return {
        "memory_bytes": _times(device.memory_bytes, case.devices),
        "usable_memory_bytes": _times(device.usable_memory_bytes, case.devices),
        "resident_weight_bytes": held.weights * case.devices,
        "per_request_bytes": held.per_batch * case.devices,
        "max_batch": None if memory is None else max(0, int((memory - held.weights) // held.per_batch)),
    }


def _times(amount: int | None, devices: int) -> int | None:
    return None if amount is None else amount * devices


def _tensor_parallel(case: _Case, tokens: int, batch: int) -> dict[str, Any]:
    """What the estimate over several devices rests on."""
    return {
        "tensor_parallel": {
            "estimate": True,
            "devices": case.devices,
            "link_bytes_per_s": case.link.bytes_per_s,
            "call_s": case.link.call_s,
            "prefill_communication_s": communication_s(case.spec, tokens, 1, case.devices, case.link),
            "decode_communication_s": communication_s(case.spec, batch, batch, case.devices, case.link),
        }
    }


def _limits(case: _Case, writing: StepLedger) -> dict[str, float | int | None]:
    counted: dict[str, Any] = {"formats": case.formats, "convention": case.convention}
    return {
        "intensity_at_infinite_batch": roofline.limit_intensity(writing),
        "kv_equals_state_context": roofline.kv_equals_state_context(case.part, **counted),
        "state_equals_replaced_kv_context": roofline.state_equals_replaced_kv_context(case.part, formats=case.formats),
        "compute_bound_prompt_tokens": roofline.compute_bound_prompt_tokens(case.part, case.roof, **counted),
    }
