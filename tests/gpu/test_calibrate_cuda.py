"""Ceilings of a CUDA device: the same calls as on a CPU, on the device's own clock."""

from __future__ import annotations

import pytest
import torch

from engine import catalogue
from engine.calibrate import calibrate, for_model
from engine.ceilings import Ceilings
from engine.expected import predictor
from engine.ledger import Formats

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def ceilings() -> Ceilings:
    return calibrate("cuda", 1, largest_bytes=2**28, gemm_sizes=(1024, 4096), rounds=3)


def test_memory_is_read_at_a_rate_no_card_exceeds_and_every_card_reaches(ceilings: Ceilings) -> None:
    assert 5e10 < ceilings.bandwidth[-1].bytes_per_s < 2e13
    assert ceilings.device.kind == "cuda"


def test_half_precision_is_faster_than_single(ceilings: Ceilings) -> None:
    assert ceilings.peak_flops_per_s["bf16"] > ceilings.peak_flops_per_s["fp32"]


def test_a_models_points_give_an_expected_line_above_the_roof(ceilings: Ceilings) -> None:
    spec = catalogue.load("tiny-3.7m")
    known = for_model(ceilings, spec, "bf16", rows=[1, 16], budget_s=2.0)
    assert all(point.time_ns > 0 for point in known.linear + known.small_ops)
    lines = predictor(spec, known, None, Formats.dense("bf16")).decode(100).predicted_ns
    assert lines.expected >= lines.measured_roof
