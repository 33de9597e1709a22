"""The two estimates of one step - compute alone, bytes alone - for any number of devices, counted once for all.

What a device with unlimited bandwidth would need, and what one with unlimited compute would; the step takes at least
the larger (Williams, Waterman and Patterson, 2009). Devices without a peak for the dtype are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from engine.errors import LabError
from engine.ledger import Convention, Formats, decode, prefill, resident
from engine.ledger.convention import named
from engine.predict import DeviceLike, roof_of, weights_only
from engine.roofline import Bound
from engine.spec import Spec

Of = Literal["weights", "decode", "prefill"]


@dataclass(frozen=True, slots=True)
class Work:
    """One step: its FLOPs and bytes, the tokens it yields or reads, and what has to be held for it."""

    flops: int
    bytes: int
    tokens: int
    held_bytes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Both estimates of one step on one device. `room_bytes` is below 0 by what does not fit, None where unknown."""

    device: DeviceLike
    dtype: str
    tokens: int
    compute_s: float
    memory_s: float
    room_bytes: int | None
    ridge_flop_per_byte: float

    @property
    def time_s(self) -> float:
        """The step's floor: the larger of the two."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound(self) -> Bound:
        """Which of the two estimates is the right one."""
        return "compute" if self.compute_s > self.memory_s else "memory"

    @property
    def compute_tokens_per_s(self) -> float:
        """Tokens a second by compute alone."""
        return self.tokens / self.compute_s

    @property
    def memory_tokens_per_s(self) -> float:
        """Tokens a second by bytes alone."""
        return self.tokens / self.memory_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second at the floor."""
        return self.tokens / self.time_s


@dataclass(frozen=True, slots=True)
class Change:
    """What exchanging one device for another does to each estimate, as speed-ups."""

    compute: float
    memory: float
    both: float

    @classmethod
    def between(cls, before: Estimate, after: Estimate) -> Change:
        """From one device to another, of the same work."""
        return cls(
            compute=before.compute_s / after.compute_s,
            memory=before.memory_s / after.memory_s,
            both=before.time_s / after.time_s,
        )


def work(
    spec: Spec,
    of: Of,
    *,
    prompt_tokens: int,
    context: int,
    batch: int,
    formats: Formats,
    convention: str | Convention,
) -> Work:
    """The step asked about: a prefill of one prompt, a decode step of a batch, or that step's weights alone."""
    counted = named(convention)
    held = resident(
        spec, batch=batch, max_tokens=context, formats=formats, convention=counted, whole_checkpoint=True
    ).total
    if of == "prefill":
        step = prefill(spec, prompt_tokens, formats=formats, convention=counted)
        return Work(step.flops, step.bytes.total, prompt_tokens, held)
    step = decode(spec, context + 1, batch=batch, formats=formats, convention=counted)
    flops, moved = weights_only(step, counted) if of == "weights" else (step.flops, step.bytes.total)
    return Work(flops, moved, batch, held)


def estimate(asked: Work, device: DeviceLike, *, formats: Formats, convention: str | Convention) -> Estimate:
    """Both estimates on one device.

    Raises:
        LabError: the device has no peak to stand by for the dtype.
    """
    roof, dtype = roof_of(device, formats)
    usable = device.usable_memory_bytes if named(convention).usable_memory else None
    memory = usable or device.memory_bytes
    return Estimate(
        device=device,
        dtype=dtype,
        tokens=asked.tokens,
        compute_s=asked.flops / roof.flops_per_s,
        memory_s=asked.bytes / roof.bytes_per_s,
        room_bytes=None if memory is None else memory - asked.held_bytes,
        ridge_flop_per_byte=roof.ridge_flop_per_byte,
    )


def estimates(
    asked: Work, devices: Iterable[DeviceLike], *, formats: Formats, convention: str | Convention
) -> list[Estimate]:
    """Both estimates on every device that has a peak for the dtype, fastest first."""
    found = []
    for device in devices:
        try:
            found.append(estimate(asked, device, formats=formats, convention=convention))
        except LabError:  # no peak to stand by: nothing to compare
            continue
    return sorted(found, key=lambda each: each.time_s)
