"""A real calibration with tiny settings: what must hold of any machine's ceilings. No time is asserted."""

from __future__ import annotations

import itertools

import pytest
import torch

from engine.calibrate import calibrate
from engine.ceilings import Ceilings
from engine.measure import Stopped

SMALL = {"largest_bytes": 2**20, "gemm_sizes": (64, 128), "rounds": 2}


@pytest.fixture(scope="module")
def told() -> list[tuple[str, float]]:
    return []


@pytest.fixture(scope="module")
def ceilings(told: list[tuple[str, float]]) -> Ceilings:
    torch.set_num_threads(2)  # so that it shows whether calibration sets its own number
    return calibrate("cpu", 1, progress=lambda sentence, share: told.append((str(sentence), share)), **SMALL)


def test_bandwidth_covers_doubling_sizes_up_to_the_largest_asked_for(ceilings: Ceilings) -> None:
    assert [point.working_set_bytes for point in ceilings.bandwidth] == [65536, 131072, 262144, 524288, 1048576]


def test_bandwidth_is_that_of_the_best_kernel_and_every_kernel_is_kept(ceilings: Ceilings) -> None:
    for point in ceilings.bandwidth:
        assert point.bytes_per_s == max(point.by_kernel.values()) > 0
        assert {"sum", "dot", "mv", "linear"} <= set(point.by_kernel)
        assert 0 <= point.spread < 10


def test_bandwidth_lies_between_a_slow_disk_and_the_fastest_cache_there_is(ceilings: Ceilings) -> None:
    # Wrong by a factor of 1e3 in a unit, or work left out of the clock, would fall outside.
    assert all(1e7 < point.bytes_per_s < 1e13 for point in ceilings.bandwidth)


def test_peaks_are_measured_for_both_dtypes_and_launch_costs_something(ceilings: Ceilings) -> None:
    assert set(ceilings.peak_flops_per_s) == {"fp32", "bf16"}
    assert all(1e7 < rate < 1e16 for rate in ceilings.peak_flops_per_s.values())
    assert 50 < ceilings.launch_ns < 1e7
    assert ceilings.probe_ns > 0


def test_ceilings_say_what_they_were_measured_on(ceilings: Ceilings) -> None:
    assert ceilings.device.threads == 1 == torch.get_num_threads()
    assert ceilings.device.torch_version == torch.__version__
    assert ceilings.device.name


def test_progress_rises_to_one(told: list[tuple[str, float]], ceilings: Ceilings) -> None:
    shares = [share for _, share in told]
    assert shares[0] == 0.0
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert len({sentence for sentence, _ in told}) == 3


def test_ceilings_survive_json(ceilings: Ceilings) -> None:
    assert Ceilings.model_validate_json(ceilings.model_dump_json()) == ceilings


@pytest.mark.parametrize("after", [0, 1, 7])
def test_it_stops_at_the_next_sample_when_asked(after: int) -> None:
    asked = itertools.count()
    with pytest.raises(Stopped):
        calibrate("cpu", 1, should_stop=lambda: next(asked) >= after, **SMALL)
    assert next(asked) == after + 1  # asked once more than it went on, and never again


def test_the_key_changes_with_device_torch_and_threads_and_with_nothing_else(ceilings: Ceilings) -> None:
    device = ceilings.device
    key = Ceilings.key(device)
    assert key == Ceilings.key(device.model_copy(update={"platform": "another kernel", "hardware_id": "h100-sxm"}))
    for change in ({"threads": 2}, {"torch_version": "2.0"}, {"name": "another"}, {"kind": "cuda"}):
        assert Ceilings.key(device.model_copy(update=change)) != key
