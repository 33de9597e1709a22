"""The machine now beside what it was: how lines are scaled and ceilings raised, against arithmetic done by hand."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from by_hand import CONFIG
from records import ceilings

from engine import ledger, spec
from engine.ceilings import BandwidthPoint, Ceilings, ControlPoint, ControlRates
from engine.expected import predict_step, predictor
from engine.judging import UNSTEADY
from engine.ledger import Formats
from engine.present import AS_MEASURED, QUARTILE, Present, agreed, beyond_chance, chance, present

CONTROLS = [
    ControlPoint(dtype="fp32", working_set_bytes=500, read_bytes_per_s=20e9, multiplied_flops_per_s=100e9),
    ControlPoint(dtype="bf16", working_set_bytes=500, read_bytes_per_s=1e9, multiplied_flops_per_s=1e9),
]
NOW = ControlRates(read_bytes_per_s=16e9, multiplied_flops_per_s=200e9)
SPEC = spec.read(CONFIG)


def machine(**changes: Any) -> Ceilings:
    bandwidth = [BandwidthPoint(working_set_bytes=size, bytes_per_s=rate, spread=0.1) for size, rate in ((1, 4e9),)]
    values = {"bandwidth": bandwidth, "peak_flops_per_s": {"fp32": 8e9, "bf16": 2e9}, "launch_ns": 10.0}
    return ceilings(**{**values, "linear": [], "small_ops": [], **changes})


@pytest.mark.parametrize(
    ("memory_ns", "compute_ns", "expected"),
    [(5.0, 0.0, 1.44), (0.0, 5.0, 0.25), (7.0, 7.0, 0.6), (3.0, 1.0, 1.44**0.75 * 0.25**0.25), (0.0, 0.0, 1.44)],
)
def test_a_step_is_scaled_by_what_it_is_made_of(memory_ns: float, compute_ns: float, expected: float) -> None:
    assert Present(1.44, 0.25).scale(memory_ns, compute_ns) == pytest.approx(expected)
    assert AS_MEASURED.scale(memory_ns, compute_ns) == 1.0


def test_what_takes_longer_now_has_a_ratio_above_one() -> None:
    known = machine(controls=CONTROLS)
    assert present(known, "fp32", 500, [NOW]) == Present(reading=1.25, multiplying=0.5, seen=(NOW,))
    assert present(known, "bf16", 500, [NOW]).reading == 1 / 16
    assert present(known, "fp32", 501, [NOW]) is AS_MEASURED
    assert present(known, "fp32", 500, []) is AS_MEASURED
    assert present(machine(), "fp32", 500, [NOW]) is AS_MEASURED


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [([1.5, 1.2], 1.2), ([1.2, 1.5, 1.3], 1.2), ([0.5, 0.8], 0.8), ([0.8, 1.2], 1.0), ([1.0, 3.0], 1.0), ([0.7], 0.7)],
)
def test_only_what_all_readings_agree_on_counts(ratios: list[float], expected: float) -> None:
    assert agreed(ratios) == expected
    then, now = CONTROLS[0], [NOW.model_copy(update={"read_bytes_per_s": 20e9 / ratio}) for ratio in ratios]
    assert present(machine(controls=[then]), "fp32", 500, now).reading == pytest.approx(expected)


@pytest.mark.parametrize(("deviations", "believed"), [(0.0, 1.0), (0.5, 0.75), (0.9, 0.19), (1.0, 0.0), (7.0, 0.0)])
@pytest.mark.parametrize("ratio", [1.3, 1 / 1.3])
def test_of_a_ratio_what_chance_explains_is_not_believed(ratio: float, deviations: float, believed: float) -> None:
    """deviations: of one reading from the next, in units of how far the ratio is off. 1 - 0.9^2 = 0.19."""
    deviation = deviations * math.log(1.3)
    assert beyond_chance(ratio, deviation) == pytest.approx(ratio**believed)
    assert beyond_chance(1.0, deviation) == 1.0


def test_readings_that_differ_from_each_other_make_less_of_a_difference() -> None:
    spreads = {"read_chance": 0.1, "multiplied_chance": 0.4}
    found = present(machine(controls=[CONTROLS[0].model_copy(update=spreads)]), "fp32", 500, [NOW])
    assert found.reading == pytest.approx(beyond_chance(1.25, 0.1)) != 1.25
    assert 1 < found.reading < 1.25
    assert found.multiplying < 1
    unsure = CONTROLS[0].model_copy(update=spreads | {"multiplied_chance": UNSTEADY})
    assert present(machine(controls=[unsure]), "fp32", 500, [NOW]) is AS_MEASURED


def test_chance_is_what_readings_differ_by_from_one_to_the_next_and_not_over_all() -> None:
    generator = random.Random(1)
    still = [math.exp(0.05 * generator.gauss(0, 1)) for _ in range(2000)]
    assert chance(still) == pytest.approx(0.05, rel=0.1)
    drifting = [time * math.exp(place / 500) for place, time in enumerate(still)]
    assert chance(drifting) == pytest.approx(0.05, rel=0.1)
    assert chance([*still[:1000], *(2 * time for time in still[1000:])]) == pytest.approx(0.05, rel=0.1)
    assert chance([3.0, 3.0, 3.0]) == 0.0
    assert chance([3.0, 3.0]) == chance([]) == UNSTEADY
    assert statistics.NormalDist().inv_cdf(0.75) == pytest.approx(QUARTILE, rel=1e-3)


def test_the_expected_line_is_scaled_and_the_roof_is_not() -> None:
    step, known = ledger.decode(SPEC, 5, formats=Formats.dense("fp32")), machine()
    before = predict_step(step, known, "fp32")
    now = Present(reading=1.5, multiplying=1.2)
    after = predict_step(step, known, "fp32", now=now)
    scale = now.scale(before.memory_ns, before.compute_ns)
    assert 1.2 < scale < 1.5
    assert after.predicted_ns.expected == pytest.approx(before.predicted_ns.expected * scale)
    assert after.launches_ns == pytest.approx(before.launches_ns * scale)
    assert after.predicted_ns.measured_roof == before.predicted_ns.measured_roof
    faster = predict_step(step, known, "fp32", now=Present(0.01, 0.01))
    assert faster.predicted_ns.expected == before.predicted_ns.measured_roof, "nothing is expected above the roof"


def test_reading_scales_steps_of_few_rows_and_multiplying_those_of_many() -> None:
    known = machine(peak_flops_per_s={"fp32": 40e9})
    for now, phase in ((Present(2.0, 1.0), "decode"), (Present(1.0, 2.0), "prefill")):
        lines, plain = (predictor(SPEC, known, None, Formats.dense("fp32"), now=each) for each in (now, AS_MEASURED))
        ratios = {
            "decode": lines.decode(9).predicted_ns.expected / plain.decode(9).predicted_ns.expected,
            "prefill": lines.prefill(100).predicted_ns.expected / plain.prefill(100).predicted_ns.expected,
        }
        other = ({"decode", "prefill"} - {phase}).pop()
        assert 1.0 < ratios[other] < 1.5 < ratios[phase] < 2.0
