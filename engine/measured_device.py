"""This machine as one of the devices: the same questions as of a listed one, answered by its measured ceilings.

Where a datasheet has one bandwidth, a machine has one for each size of what is read; a prediction takes the one at
the bytes its own step reads, so that a model which fits in a cache is judged by the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.ceilings import Ceilings

THIS_MACHINE = "this-machine"
SAME = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    """What `engine.predict` needs of a device, as measured here. Its memory is what the machine has."""

    name: str
    bandwidth_bytes_per_s: float
    memory_bytes: int | None
    peaks: dict[str, float] = field(hash=False)
    id: str = THIS_MACHINE
    usable_memory_bytes: int | None = None

    def peak_flops_per_s(self, dtype: str) -> float | None:
        """The best matrix product measured in `dtype`; None where that was not measured."""
        return self.peaks.get(SAME.get(dtype, dtype))

    @classmethod
    def of(cls, ceilings: Ceilings, working_set_bytes: float) -> MeasuredDevice:
        """The machine these ceilings are of, for steps that touch `working_set_bytes`."""
        facts = ceilings.device
        bandwidth = ceilings.bandwidth_at(max(working_set_bytes, 1))
        return cls(facts.name, bandwidth, facts.memory_bytes, dict(ceilings.peak_flops_per_s))
