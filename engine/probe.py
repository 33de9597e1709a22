"""The control probe: one fixed matvec, timed before and after each run, that says whether the machine kept still.

It reads a matrix too large for the caches and never changes, so two readings on one machine differ only
by what else the machine was doing. Knows nothing of models or of what is measured between two readings.
"""

from __future__ import annotations

import functools
import os
import statistics

import torch
from torch.nn import functional

from engine.clock import clock_for
from engine.judging import probe_moved
from engine.neighbours import Neighbours
from engine.present import AS_MEASURED, Present
from engine.record import Probe

# 128 MiB in fp32: beyond the private caches of any core, about 7 ms a reading at 20 GB/s.
ROWS, COLUMNS = 16_384, 2_048
READINGS = 5


def probe(device: torch.device | str) -> int:
    """Median time of `READINGS` matvecs in nanoseconds, after one untimed; 20 to 50 ms in all on a small CPU."""
    device = torch.device(device)
    matrix, vector = _operands(device)
    clock = clock_for(device)
    with torch.inference_mode():
        functional.linear(vector, matrix)
        readings = [clock.time(lambda: functional.linear(vector, matrix))[1] for _ in range(READINGS)]
    return round(statistics.median(readings))


def probed(before_ns: int, neighbours: Neighbours, device: torch.device, now: Present = AS_MEASURED) -> Probe:
    """The machine around what has just been measured: the probe again, and what others used of it meanwhile.

    neighbours: counting since the first of the timed calls. now: what the lines were scaled by.
    """
    other_cores = neighbours.other_cores()
    after_ns = probe(device)
    return Probe(
        before_ns=before_ns,
        after_ns=after_ns,
        load=load_average(),
        moved=probe_moved(before_ns, after_ns),
        other_cores=other_cores,
        reading_scaled_by=now.reading,
        multiplying_scaled_by=now.multiplying,
        control=list(now.seen),
    )


def load_average() -> float | None:
    """Runnable processes over the last minute, or None where the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


@functools.lru_cache(maxsize=1)
def _operands(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    # Filled, not zeroed: untouched zero pages all map to one page, which would be read from cache.
    return torch.full((ROWS, COLUMNS), 0.01, device=device), torch.full((1, COLUMNS), 0.5, device=device)
