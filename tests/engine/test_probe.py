"""The control probe: a fixed piece of work."""

from __future__ import annotations

import os
from time import monotonic

import pytest
import torch
from records import ceilings
from torch.utils.flop_counter import FlopCounterMode

from engine import probe


def test_the_probe_takes_time_and_does_the_same_work_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "LASTS_S", 0.0)
    with FlopCounterMode(display=False) as counter:
        first = probe.probe("cpu")
    assert first > 0
    # One untimed matvec and five timed ones over 2^25 weights, 2 FLOPs each.
    assert counter.get_total_flops() == 6 * 2 * 2**25
    assert probe.probe(torch.device("cpu")) > 0


def test_it_goes_on_for_its_time_and_no_further() -> None:
    with FlopCounterMode(display=False) as counter:
        began = monotonic()
        probe.probe("cpu")
    assert monotonic() - began >= probe.LASTS_S or counter.get_total_flops() == (1 + probe.MOST) * 2 * 2**25
    assert probe.FEWEST < counter.get_total_flops() / (2 * 2**25) <= 1 + probe.MOST


def test_ceilings_are_those_of_the_machine_as_it_is_before_a_run() -> None:
    known = ceilings().model_copy(update={"probe_ns": 8_000_000})
    factor = known.times_longer(10_000_000)
    assert factor == 1.25
    now = known.slowed(factor)
    assert now.bandwidth_at(1e9) == pytest.approx(known.bandwidth_at(1e9) / 1.25)
    assert now.peak("fp32") == pytest.approx((known.peak("fp32") or 0) / 1.25)
    assert now.launch_ns == 1.25 * known.launch_ns
    assert [p.time_ns for p in now.linear] == [1.25 * p.time_ns for p in known.linear]
    assert [p.time_ns for p in now.small_ops] == [1.25 * p.time_ns for p in known.small_ops]
    assert now.probe_ns == known.probe_ns, "how far off the machine is can still be told"
    assert known.model_copy(update={"probe_ns": 0}).times_longer(10_000_000) == 1.0


def test_load_average_is_the_systems_own() -> None:
    before, load, after = os.getloadavg(), probe.load_average(), os.getloadavg()
    assert load in (before[0], after[0])
