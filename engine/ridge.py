"""The ridge in rows: how many rows must share one reading of the weights before arithmetic takes as long as reading.

Williams, Waterman and Patterson (2009) put the ridge at peak / bandwidth FLOPs a byte. A matrix of k x n
weights does 2 k n FLOPs a row and reads k n weights once, however many rows there are; so the ridge in rows
is half the ridge in FLOPs a byte times the bytes of one weight. For two-byte weights the two are one number.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.ceilings import Ceilings, LinearPoint
from engine.hardware_device import Device

WEIGHT_BYTES = {
    "fp64": 8.0,
    "fp32": 4.0,
    "tf32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "fp4": 0.5,
    "int4": 0.5,
}


def rows_at_ridge(flops_per_s: float, bytes_per_s: float, weight_bytes: float) -> float:
    """Rows at which 2 rows FLOPs a weight take as long as reading that weight."""
    return flops_per_s / bytes_per_s * weight_bytes / 2


@dataclass(frozen=True, slots=True)
class Limits:
    """The roof over products of one kind: peak, bandwidth, and the bytes of one weight (scales left out)."""

    flops_per_s: float
    bytes_per_s: float
    weight_bytes: float

    @property
    def rows(self) -> float:
        """Where it turns."""
        return rows_at_ridge(self.flops_per_s, self.bytes_per_s, self.weight_bytes)

    def attainable_flops_per_s(self, rows: float) -> float:
        """The roof over `rows` rows: what one reading of the weights can feed, and never more than the peak."""
        return min(self.flops_per_s, 2 * rows / self.weight_bytes * self.bytes_per_s)


def of_point(point: LinearPoint, ceilings: Ceilings) -> Limits | None:
    """The roof over a measured product and all like it; None where its rate was not measured."""
    peak = ceilings.peak(point.multiplication)
    weight_bytes = WEIGHT_BYTES.get((point.weights or point.dtype).partition("-")[0])
    if peak is None or weight_bytes is None:
        return None
    return Limits(peak, ceilings.bandwidth_at(point.working_set_bytes), weight_bytes)


def of_ceilings(ceilings: Ceilings) -> dict[str, float]:
    """This machine's ridge in rows, by dtype, with weights read from memory (the largest working set measured)."""
    bytes_per_s = ceilings.bandwidth[-1].bytes_per_s
    return {
        dtype: rows_at_ridge(rate, bytes_per_s, WEIGHT_BYTES[dtype])
        for dtype, rate in ceilings.peak_flops_per_s.items()
        if dtype in WEIGHT_BYTES
    }


def of_device(device: Device, dtype: str) -> float | None:
    """A listed device's ridge in rows from its datasheet, or None where it has no such peak."""
    peak = device.peak_flops_per_s(dtype)
    return None if peak is None else rows_at_ridge(peak, device.bandwidth_bytes_per_s, WEIGHT_BYTES[dtype])
