"""How fast a model's own steps were seen to read memory: evidence for this machine's bandwidth beside plain readings.

Plain readings are made once, in the few seconds of "Measure this machine"; a model's ops are timed later, right before
its first run. Where a step of one token was then seen to read its weights faster, memory can be read that fast, and a
roof that says otherwise is too low: it would call steps impossible that are not, and expect all of them at the pace of
a slower moment. Pure arithmetic over the points of dry steps; no run is looked at.
"""

from __future__ import annotations

import statistics

from engine.ceilings import BandwidthPoint, Ceilings
from engine.ledger import StepLedger
from engine.points import Points

KERNEL = "decode steps"
"""What such a reading is called among the kernels that read memory."""


def raise_bandwidth(ceilings: Ceilings, step: StepLedger, dtype: str, weight_bytes: int) -> Ceilings:
    """The ceilings with bandwidth at least as high as this model's matrices were read in a step of one token.

    What holds for so many bytes read over and over holds for fewer. A step that reads more than the largest plain
    reading counts as one of that size: from there on bandwidth is flat.

    Args:
        step: a decode step of the model. weight_bytes: the working set its points were timed in.
    """
    seen = _seen(ceilings, step, dtype, weight_bytes)
    if seen is None or seen.bytes_per_s <= ceilings.bandwidth_at(seen.working_set_bytes):
        return ceilings
    points = {point.working_set_bytes: point for point in ceilings.bandwidth}
    points.setdefault(seen.working_set_bytes, seen)
    slower = [
        point
        for size, point in points.items()
        if size <= seen.working_set_bytes and point.bytes_per_s <= seen.bytes_per_s
    ]
    for point in slower:
        raised = {"bytes_per_s": seen.bytes_per_s, "spread": seen.spread, "by_kernel": point.by_kernel | seen.by_kernel}
        points[point.working_set_bytes] = point.model_copy(update=raised)
    return ceilings.model_copy(update={"bandwidth": [points[size] for size in sorted(points)]})


def _seen(ceilings: Ceilings, step: StepLedger, dtype: str, weight_bytes: int) -> BandwidthPoint | None:
    """Bytes of all matrices over their time; None where one was not timed.

    Left out are those whose time lies in another op's.
    """
    points = Points(ceilings, dtype, weight_bytes)
    matrices = [op for op in step.ops if op.kind == "linear" and op.name not in points.covered]
    times = [points.op_ns(op, step) for op in matrices]
    spreads = [
        point.spread
        for point in ceilings.linear
        if (point.dtype, point.working_set_bytes, point.rows) == (dtype, weight_bytes, 1)
    ]
    timed = [op.count * time for op, time in zip(matrices, times, strict=True) if time is not None]
    if len(timed) < len(matrices) or not spreads:
        return None
    rate = sum(op.bytes.weights for op in matrices) / sum(timed) * 1e9
    size = min(round(step.working_set_bytes), ceilings.bandwidth[-1].working_set_bytes)
    return BandwidthPoint(
        working_set_bytes=size, bytes_per_s=rate, spread=statistics.median(spreads), by_kernel={KERNEL: rate}
    )
