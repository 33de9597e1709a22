"""The control probe: a fixed piece of work."""

from __future__ import annotations

import os

import torch
from torch.utils.flop_counter import FlopCounterMode

from engine import probe


def test_the_probe_takes_time_and_does_the_same_work_each_time() -> None:
    with FlopCounterMode(display=False) as counter:
        first = probe.probe("cpu")
    assert first > 0
    # One untimed matvec and five timed ones over 2^25 weights, 2 FLOPs each.
    assert counter.get_total_flops() == 6 * 2 * 2**25
    assert probe.probe(torch.device("cpu")) > 0


def test_load_average_is_the_systems_own() -> None:
    before, load, after = os.getloadavg(), probe.load_average(), os.getloadavg()
    assert load in (before[0], after[0])
