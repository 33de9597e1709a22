"""The ridge in rows against the lesson's number and against the roofline's definition."""

from __future__ import annotations

import pytest

from engine import hardware, ridge


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
    assert ridge.attainable_flops_per_s(rows, peak, bandwidth, weight_bytes) == pytest.approx(peak)
    assert ridge.attainable_flops_per_s(rows / 2, peak, bandwidth, weight_bytes) == pytest.approx(peak / 2)
    assert ridge.attainable_flops_per_s(rows * 9, peak, bandwidth, weight_bytes) == peak
