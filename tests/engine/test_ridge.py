"""The ridge in rows against the lesson's number and against the roofline's definition."""

from __future__ import annotations

import pytest
from records import ceilings

from engine import hardware, ridge
from engine.ceilings import LinearPoint


def test_the_lessons_card_turns_at_about_295_rows() -> None:
    """The lesson: on an H100 a prompt longer than about 295 tokens is limited by arithmetic."""
    assert ridge.of_device(hardware.load("h100-sxm"), "bf16") == pytest.approx(295, abs=0.5)


def test_for_two_byte_weights_rows_are_flops_a_byte() -> None:
    card = hardware.load("h100-sxm")
    assert ridge.of_device(card, "bf16") == card.ridge_flop_per_byte("bf16")
    assert ridge.of_device(card, "fp64") is None or ridge.of_device(card, "fp64") > 0


@pytest.mark.parametrize("weight_bytes", [4.0, 2.0, 1.0, 0.5])
def test_at_the_ridge_both_limits_meet(weight_bytes: float) -> None:
    peak, bandwidth = 190e9, 18e9
    rows = ridge.rows_at_ridge(peak, bandwidth, weight_bytes)
    weights = 1e6
    assert 2 * rows * weights / peak == pytest.approx(weight_bytes * weights / bandwidth)
    limits = ridge.Limits(peak, bandwidth, weight_bytes)
    assert limits.rows == rows
    assert limits.attainable_flops_per_s(rows) == pytest.approx(peak)
    assert limits.attainable_flops_per_s(rows / 2) == pytest.approx(peak / 2)
    assert limits.attainable_flops_per_s(rows * 9) == peak


def test_the_roof_over_a_product_is_that_of_what_its_matrix_is_held_in() -> None:
    """100 GFLOP/s in fp32, 400 with int8 weights; 100 MB are read at 18 GB/s."""
    machine = ceilings(peak_flops_per_s={"fp32": 100e9, "fp32 × int8": 400e9})

    def limits(dtype: str, weights: str) -> ridge.Limits | None:
        point = LinearPoint(
            k=1, n=1, dtype=dtype, rows=1, time_ns=1, spread=0, working_set_bytes=10**8, weights=weights
        )
        return ridge.of_point(point, machine)

    assert limits("fp32", "") == limits("fp32", "fp32") == ridge.Limits(100e9, pytest.approx(18e9), 4.0)
    assert limits("fp32", "int8") == ridge.Limits(400e9, pytest.approx(18e9), 1.0)
    assert limits("fp32", "int4-g32") == ridge.Limits(100e9, pytest.approx(18e9), 0.5)
    assert limits("bf16", "int8") is None
    assert ridge.of_ceilings(machine) == {"fp32": pytest.approx(100 / 18 * 2)}
