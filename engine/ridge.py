"""The ridge in rows: how many rows must share one reading of the weights before arithmetic takes as long as reading.

Williams, Waterman and Patterson (2009) put the ridge at peak / bandwidth FLOPs a byte. A matrix of k x n
weights does 2 k n FLOPs a row and reads k n weights once, however many rows there are; so the ridge in rows
is half the ridge in FLOPs a byte times the bytes of one weight. For two-byte weights the two are one number.
"""

from __future__ import annotations

from engine.ceilings import Ceilings
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


def attainable_flops_per_s(rows: float, flops_per_s: float, bytes_per_s: float, weight_bytes: float) -> float:
    """The roof over `rows` rows: what one reading of the weights can feed, and never more than the peak."""
    return min(flops_per_s, 2 * rows / weight_bytes * bytes_per_s)


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
