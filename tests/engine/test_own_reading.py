"""Bandwidth that a model's own steps show, against arithmetic done by hand."""

from __future__ import annotations

import pytest
from by_hand import CONFIG

from engine import ledger
from engine.ceilings import BandwidthPoint, Ceilings, DeviceFacts, LinearPoint, SmallOpPoint
from engine.expected import predict_step
from engine.judging import LeastTime, impossible, roof_of
from engine.ledger import Formats
from engine.own_reading import KERNEL, raise_bandwidth
from engine.spec import Spec, read

SPEC = read(CONFIG)
# Products of one token: qkv 8 x 16, o 8 x 8, gate and up 8 x 32, down 16 x 8; the head is 8 x 32 as well.
LINEAR_NS = {(8, 16): 100.0, (8, 8): 50.0, (8, 32): 200.0, (16, 8): 110.0}
MATRIX_BYTES = 4 * (2 * (8 * 16 + 8 * 8 + 8 * 32 + 16 * 8) + 8 * 32)
RATE = MATRIX_BYTES / (2 * (100 + 50 + 200 + 110) + 200) * 1e9
"""5632 bytes in 1120 ns."""
WEIGHT_BYTES = 6000


def step(spec: Spec = SPEC, context: int = 1) -> ledger.StepLedger:
    return ledger.decode(spec, context, formats=Formats.dense("fp32"))


def ceilings(bandwidth: dict[int, float], *, spreads: tuple[float, ...] = (0.02, 0.03, 0.05, 0.3)) -> Ceilings:
    return Ceilings(
        id="by-hand",
        measured_at="2026-01-01T00:00:00+00:00",
        device=DeviceFacts(kind="cpu", name="a machine", threads=2, torch_version="2"),
        bandwidth=[
            BandwidthPoint(working_set_bytes=size, bytes_per_s=rate, spread=0.1, by_kernel={"sum": rate})
            for size, rate in bandwidth.items()
        ],
        peak_flops_per_s={"fp32": 1e15},
        launch_ns=7.0,
        linear=[
            LinearPoint(
                k=k, n=n, dtype="fp32", rows=rows, time_ns=time_ns, spread=spread, working_set_bytes=WEIGHT_BYTES
            )
            for ((k, n), time_ns), spread in zip(LINEAR_NS.items(), spreads, strict=True)
            for rows in (1, 4)
        ],
    )


def rates(found: Ceilings) -> dict[int, float]:
    return {point.working_set_bytes: point.bytes_per_s for point in found.bandwidth}


def test_a_step_that_read_faster_raises_bandwidth_at_its_size_and_below() -> None:
    touched = round(step().working_set_bytes)
    known = ceilings({1000: 3e9, 4000: 6e9, 10_000: 1e9})
    found = raise_bandwidth(known, step(), "fp32", WEIGHT_BYTES)
    assert rates(found) == pytest.approx({1000: RATE, 4000: 6e9, touched: RATE, 10_000: 1e9})
    assert found.bandwidth_at(touched) == pytest.approx(RATE) == pytest.approx(5.0286e9, rel=1e-4)
    at = {point.working_set_bytes: point for point in found.bandwidth}
    assert at[1000].by_kernel == pytest.approx({"sum": 3e9, KERNEL: RATE})
    assert at[1000].spread == at[touched].spread == pytest.approx(0.04), "the median spread of one row's products"
    assert at[4000] == known.bandwidth[1]
    assert raise_bandwidth(found, step(), "fp32", WEIGHT_BYTES) == found


def test_a_slower_step_changes_nothing() -> None:
    known = ceilings({1000: 3e9, 10_000: 6e9})
    assert raise_bandwidth(known, step(), "fp32", WEIGHT_BYTES) is known


def test_a_step_beyond_the_largest_reading_counts_at_its_size() -> None:
    found = raise_bandwidth(ceilings({1000: 9e9, 2000: 1e9}), step(), "fp32", WEIGHT_BYTES)
    assert rates(found) == pytest.approx({1000: 9e9, 2000: RATE})


def test_other_models_points_and_other_dtypes_show_nothing() -> None:
    known = ceilings({1000: 1e9})
    assert raise_bandwidth(known, step(), "bf16", WEIGHT_BYTES) is known
    assert raise_bandwidth(known, step(), "fp32", WEIGHT_BYTES + 1) is known


def test_a_step_at_the_dry_steps_pace_is_not_called_impossible_and_is_expected_so() -> None:
    """What the roof was before: a step just as fast as the dry steps beat it five times over."""
    known = ceilings({1000: 1e9, 10_000: 1e9})
    raised = raise_bandwidth(known, step(), "fp32", WEIGHT_BYTES)
    decode = step()
    time_ns = MATRIX_BYTES / RATE * 1e9 * 1.05
    sizes = ("fp32", decode.flops, decode.bytes.total, decode.working_set_bytes)
    before, after = (roof_of(each, *sizes) for each in (known, raised))
    assert impossible(time_ns, before, None) == ["beats_roof"]
    assert impossible(time_ns, after, None) == []
    assert isinstance(after, LeastTime)
    assert after.time_ns < before.time_ns / 4
    assert predict_step(decode, raised, "fp32").predicted_ns.expected < before.time_ns / 2


def test_matrices_timed_within_another_op_are_left_out() -> None:
    """A mixture's second expert matrix lies in the first one's lap: with its bytes the rate would be too high."""
    mixture = read(
        CONFIG
        | {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_hidden_layers": 1,
            "head_dim": 4,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "decoder_sparse_step": 1,
            "mlp_only_layers": [],
            "norm_topk_prob": True,
        }
    )
    experts = SmallOpPoint(
        kind="experts",
        width=32,
        dtype="fp32",
        rows=2,
        distinct=2,
        time_ns=500.0,
        spread=0.0,
        working_set_bytes=WEIGHT_BYTES,
        covers=["route", "experts_activation", "experts_down_proj"],
    )
    known = ceilings({1000: 1e9, 10_000: 1e9}).model_copy(update={"small_ops": [experts]})
    found = raise_bandwidth(known, step(mixture), "fp32", WEIGHT_BYTES)
    # qkv, o, the router (8 x 4, a half of the nearest, 8 x 8), two experts' first matrix at 500 in all, the head.
    matrix_bytes = 4 * (8 * 16 + 8 * 8 + 8 * 4 + 2 * 8 * 32 + 8 * 32)
    rate = matrix_bytes / (100 + 50 + 25 + 500 + 200) * 1e9
    assert max(rates(found).values()) == pytest.approx(rate)
    assert raise_bandwidth(known.model_copy(update={"small_ops": []}), step(mixture), "fp32", WEIGHT_BYTES) == (
        known.model_copy(update={"small_ops": []})
    )
