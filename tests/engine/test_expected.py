"""The three lines against arithmetic done by hand, and what must hold of them for any machine and model."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import pytest
from by_hand import CONFIG
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import catalogue, hardware, ledger, spec
from engine.ceilings import BandwidthPoint, Ceilings, DeviceFacts, LinearPoint, SmallOpPoint
from engine.expected import expected_ns, predict_step, predictor
from engine.ledger import Formats
from engine.points import Points, line_interpolate, log_interpolate, never_falling

FP32 = Formats.dense("fp32")

SPEC = spec.read(CONFIG)
# A layer's matrices: qkv 8 x (8 + 4 + 4), o 8 x 8, gate and up 8 x 32, down 16 x 8; then the head 8 x 32.
LAYER_WEIGHTS = 8 * 16 + 8 * 8 + 8 * 32 + 16 * 8
DECODE_WEIGHT_BYTES = 4 * (2 * LAYER_WEIGHTS + 8 * 32 + 5 * 8 + 8)  # five norms, one row of the embedding

LINEAR_NS = {(8, 16): 100.0, (8, 8): 50.0, (8, 32): 200.0, (16, 8): 110.0}
SMALL_NS = {("embedding", 8): 30.0, ("norm", 8): 20.0, ("rotary", 12): 15.0, ("swiglu", 16): 12.0, ("residual", 8): 5.0}


def facts() -> DeviceFacts:
    return DeviceFacts(kind="cpu", name="a machine", threads=2, torch_version="2")


def small(kind: str, width: int, rows: int, time_ns: float, **more: int) -> SmallOpPoint:
    return SmallOpPoint(
        kind=kind, width=width, dtype="fp32", rows=rows, time_ns=time_ns, spread=0.0, working_set_bytes=4000, **more
    )


def linear(
    k: int, n: int, rows: int, time_ns: float, working_set_bytes: int = 4000, dtype: str = "fp32"
) -> LinearPoint:
    return LinearPoint(
        k=k, n=n, dtype=dtype, rows=rows, time_ns=time_ns, spread=0.0, working_set_bytes=working_set_bytes
    )


def ceilings(*, bytes_per_s: float = 1e12, peak: float = 1e15, measured: bool = True) -> Ceilings:
    """By default a machine so fast that only the measured points count."""
    points = [linear(k, n, 1, t) for (k, n), t in LINEAR_NS.items()]
    points += [linear(k, n, 4, 2 * t) for (k, n), t in LINEAR_NS.items()]
    ops = [small(kind, width, 1, t) for (kind, width), t in SMALL_NS.items()]
    ops += [small("attention", 8, 1, 40.0, batch=1, context=16), small("attention", 8, 1, 60.0, batch=1, context=32)]
    ops += [small("attention", 8, 4, 300.0, batch=1, context=4)]
    return Ceilings(
        id="by-hand",
        measured_at="2026-01-01T00:00:00+00:00",
        device=facts(),
        bandwidth=[BandwidthPoint(working_set_bytes=1000, bytes_per_s=bytes_per_s, spread=0.1)],
        peak_flops_per_s={"fp32": peak},
        launch_ns=7.0,
        linear=points if measured else [],
        small_ops=ops if measured else [],
    )


# ---- interpolation -------------------------------------------------------------------------------------------------


def test_between_two_row_counts_time_is_a_power_of_rows() -> None:
    curve = [(1.0, 10.0), (4.0, 40.0), (16.0, 40.0)]
    assert log_interpolate(2, curve) == pytest.approx(20.0)  # slope 1
    assert log_interpolate(8, curve) == pytest.approx(40.0)  # slope 0
    assert log_interpolate(4, [(1.0, 10.0), (16.0, 40.0)]) == pytest.approx(20.0)  # slope 1/2


def test_outside_the_points_time_stays_below_and_grows_with_rows_above() -> None:
    curve = [(2.0, 10.0), (4.0, 12.0)]
    assert log_interpolate(1, curve) == 10.0
    assert log_interpolate(12, curve) == pytest.approx(36.0)


def test_context_is_interpolated_on_a_straight_line_and_never_runs_downhill() -> None:
    curve = [(16.0, 40.0), (32.0, 60.0)]
    assert line_interpolate(20, curve) == pytest.approx(45.0)
    assert line_interpolate(48, curve) == pytest.approx(80.0)
    assert line_interpolate(1, curve) == 40.0
    assert line_interpolate(99, [(16.0, 40.0), (32.0, 38.0)]) == 38.0
    assert line_interpolate(99, [(16.0, 40.0)]) == 40.0


@given(
    st.lists(st.tuples(st.integers(1, 4096), st.floats(1, 1e9)), min_size=1, unique_by=lambda p: p[0]),
    st.floats(1, 1e5),
)
def test_interpolation_passes_through_its_points_and_stays_between_neighbours(
    points: list[tuple[float, float]], x: float
) -> None:
    curve = sorted((float(a), b) for a, b in points)
    for known, value in curve:
        assert log_interpolate(known, curve) == pytest.approx(value)
        assert line_interpolate(known, curve) == pytest.approx(value)
    around = [(a, b) for a, b in itertools.pairwise(curve) if a[0] <= x <= b[0]]
    for (_, low), (_, high) in around:
        for between in (log_interpolate(x, curve), line_interpolate(x, curve)):
            assert min(low, high) * (1 - 1e-9) <= between <= max(low, high) * (1 + 1e-9)


def test_a_curve_that_falls_is_averaged_where_it_does_and_kept_elsewhere() -> None:
    # By hand: 5 and 3 make 4 and 4; 1 joins them at 3; then 9 stands, and 7 and 9 make 8.
    assert [y for _, y in never_falling([(1, 2.0), (2, 5.0), (3, 3.0), (4, 1.0), (5, 9.0), (6, 7.0)])] == [
        2.0, 3.0, 3.0, 3.0, 8.0, 8.0
    ]  # fmt: skip
    assert never_falling([(1, 1.0), (4, 1.0), (9, 2.5)]) == [(1, 1.0), (4, 1.0), (9, 2.5)]


def test_more_rows_are_never_expected_to_take_less() -> None:
    """What was measured of few rows while others used the machine would say so."""
    measured = [linear(8, 16, 1, 900.0), linear(8, 16, 4, 120.0), linear(8, 16, 64, 510.0)]
    points = Points(ceilings().model_copy(update={"linear": measured}), "fp32", 4000)
    assert [points.linear_ns(rows, 8, 16) for rows in (1, 2, 4)] == [510.0] * 3
    assert points.linear_ns(64, 8, 16) == 510.0, "the mean of 900 and 120"


def test_more_positions_are_never_less_work_however_unsteady_the_points() -> None:
    def attention(rows: int, context: int, time_ns: float) -> SmallOpPoint:
        return SmallOpPoint(
            kind="attention", width=8, dtype="fp32", rows=rows, time_ns=time_ns, spread=2.0, batch=1, context=context
        )

    contexts, times = (16, 64, 256, 1024), (100.0, 900.0, 300.0, 500.0)
    small = [attention(1, each, time_ns) for each, time_ns in zip(contexts, times, strict=True)]
    small += [attention(each, each, 10 * time_ns) for each, time_ns in zip(contexts, times, strict=True)]
    points = Points(ceilings().model_copy(update={"small_ops": small}), "fp32", 4000)
    decoded = [points.decode_attention_ns(1, context) or 0.0 for context in range(1, 2048)]
    read = [points.prefill_attention_ns(1, tokens) or 0.0 for tokens in range(1, 2048)]
    for found in (decoded, read):
        assert all(one <= other * (1 + 1e-12) for one, other in itertools.pairwise(found))


# ---- looking up points ---------------------------------------------------------------------------------------------


def test_a_missing_shape_is_priced_by_the_nearest_in_size_scaled() -> None:
    points = Points(ceilings(), "fp32", 4000)
    assert points.linear_ns(1, 8, 32) == 200.0
    assert points.linear_ns(1, 24, 16) == pytest.approx(200.0 * 384 / 256)
    assert points.linear_ns(1, 32, 8) == 200.0  # as many weights, another shape


def test_of_two_shapes_of_one_size_the_very_one_is_taken() -> None:
    both = ceilings().model_copy(update={"linear": [linear(8, 16, 1, 100.0), linear(16, 8, 1, 110.0)]})
    assert Points(both, "fp32", 4000).linear_ns(1, 16, 8) == 110.0
    assert Points(both, "fp32", 4000).linear_ns(1, 8, 16) == 100.0


def test_points_of_the_nearest_working_set_are_used_and_of_the_same_dtype_only() -> None:
    mixed = [linear(8, 8, 1, 10.0, 4000), linear(8, 8, 1, 99.0, 10**9), linear(8, 8, 1, 1.0, 4000, "bf16")]
    known = ceilings().model_copy(update={"linear": mixed})
    assert Points(known, "fp32", 3000).linear_ns(1, 8, 8) == 10.0
    assert Points(known, "fp32", 5 * 10**8).linear_ns(1, 8, 8) == 99.0
    assert Points(known, "bf16", 10**9).linear_ns(1, 8, 8) == 1.0
    assert Points(known, "fp16", 10**9).linear_ns(1, 8, 8) is None


def test_another_width_counts_as_as_many_rows_as_make_its_elements() -> None:
    ops = [small("norm", 8, 1, 20.0), small("norm", 8, 16, 80.0)]
    points = Points(ceilings().model_copy(update={"small_ops": ops}), "fp32", 4000)
    assert points.between_ns("norm", 1, 32) == pytest.approx(40.0)  # 4 rows of 8: half-way from 1 to 16 in log rows
    assert points.between_ns("norm", 1, 2) == 20.0
    assert points.between_ns("conv", 1, 8) is None


def test_a_batch_measured_at_one_context_grows_with_context_as_one_sequence_does() -> None:
    ops = [small("attention", 8, 1, 40.0, batch=1, context=16), small("attention", 8, 1, 60.0, batch=1, context=32)]
    ops += [small("attention", 8, 4, 100.0, batch=4, context=16)]
    points = Points(ceilings().model_copy(update={"small_ops": ops}), "fp32", 4000)
    assert points.decode_attention_ns(4, 32) == pytest.approx(150.0)
    assert points.decode_attention_ns(2, 16) == pytest.approx((40.0 * 100.0) ** 0.5)
    assert points.decode_attention_ns(8, 16) == pytest.approx(200.0)


def test_a_batch_measured_at_one_context_grows_as_the_nearest_batch_that_was_measured_at_several() -> None:
    """A single sequence's time is mostly the call's, and hardly grows."""
    ops = [small("attention", 8, 1, 40.0, batch=1, context=16), small("attention", 8, 1, 44.0, batch=1, context=32)]
    ops += [small("attention", 8, 4, 100.0, batch=4, context=16), small("attention", 8, 4, 200.0, batch=4, context=32)]
    ops += [small("attention", 8, 8, 300.0, batch=8, context=16)]
    points = Points(ceilings().model_copy(update={"small_ops": ops}), "fp32", 4000)
    assert points.decode_attention_ns(8, 32) == pytest.approx(600.0)
    assert points.decode_attention_ns(8, 24) == pytest.approx(450.0)


def test_a_longer_prompt_than_measured_grows_with_its_square_and_a_batch_with_its_size() -> None:
    points = Points(ceilings(), "fp32", 4000)
    assert points.prefill_attention_ns(1, 4) == 300.0
    assert points.prefill_attention_ns(1, 8) == pytest.approx(1200.0)
    assert points.prefill_attention_ns(3, 4) == pytest.approx(900.0)


def roof_ns(step: ledger.StepLedger, known: Ceilings) -> float:
    return predict_step(step, known, "fp32").predicted_ns.measured_roof


# ---- the three lines -----------------------------------------------------------------------------------------------


def test_the_expected_line_of_a_decode_step_is_the_sum_over_its_ops() -> None:
    layer = 100 + 50 + 200 + 110  # qkv, o, gate and up, down
    layer += 2 * 20 + 15 + 12 + 2 * 5  # two norms, rotary, swiglu, two residuals
    layer += 45  # attention at 20 positions: 40 + 20 * (20 - 16) / 16
    by_hand = 30 + 2 * layer + 20 + 200  # embedding, layers, last norm, head
    step = ledger.decode(SPEC, 20, formats=FP32)
    assert expected_ns(step, ceilings(), "fp32") == pytest.approx(by_hand)
    assert expected_ns(step, ceilings(), "float32") == pytest.approx(by_hand)


def test_the_expected_line_of_a_prefill_of_two_tokens() -> None:
    root = 2**0.5  # linears take twice as long at 4 rows: sqrt(2) times at 2
    layer = (100 + 50 + 200 + 110) * root
    layer += 2 * (2 * 20 + 15 + 12 + 2 * 5)  # one point each: beyond it, time grows as rows do
    layer += 300  # below the shortest prompt measured: as that
    by_hand = 2 * 30 + 2 * layer + 20 + 200  # the last norm and the head see one row
    assert expected_ns(ledger.prefill(SPEC, 2, formats=FP32), ceilings(), "fp32") == pytest.approx(by_hand)


def test_the_measured_roof_is_the_larger_of_bytes_and_flops_of_the_whole_step() -> None:
    context = 20
    kv_row = 2 * 4 * 4 * 2  # keys and values, 1 head of 4, fp32, two layers
    moved = DECODE_WEIGHT_BYTES + (context - 1) * kv_row + kv_row + 4 * 32
    flops = 2 * (2 * LAYER_WEIGHTS + 8 * 32) + 2 * 4 * 8 * context
    step = ledger.decode(SPEC, context, formats=FP32)
    assert roof_ns(step, ceilings(bytes_per_s=2e9)) == pytest.approx(moved / 2)
    assert roof_ns(step, ceilings(peak=5e8)) == pytest.approx(flops / 0.5)


def test_the_roof_takes_the_bandwidth_at_the_steps_working_set() -> None:
    curve = [
        BandwidthPoint(working_set_bytes=2**10, bytes_per_s=8e9, spread=0),
        BandwidthPoint(working_set_bytes=2**40, bytes_per_s=1e9, spread=0),
    ]
    two = ceilings(measured=False).model_copy(update={"bandwidth": curve})
    step = ledger.decode(SPEC, 20, formats=FP32)
    share = (math.log2(step.working_set_bytes) - 10) / 30
    assert roof_ns(step, two) == pytest.approx(step.bytes.total / (8 - 7 * share))


def test_the_datasheet_line_uses_the_datasheet_alone() -> None:
    device = hardware.from_form({"name": "A card", "bandwidth_bytes_per_s": 4e9, "fp32_flops_per_s": 1e15})
    step = ledger.decode(SPEC, 20, formats=FP32)
    lines = predict_step(step, ceilings(), "fp32", device).predicted_ns
    assert lines.datasheet == pytest.approx(step.bytes.total / 4)
    slow = hardware.from_form({"name": "A card", "bandwidth_bytes_per_s": 1e14, "fp32_flops_per_s": 1e10})
    assert predict_step(step, ceilings(), "fp32", slow).predicted_ns.datasheet == pytest.approx(step.flops / 10)
    assert predict_step(step, ceilings(), "fp32").predicted_ns.datasheet is None
    assert predict_step(step, ceilings(), "bf16", slow).predicted_ns.datasheet is None, "no bf16 rate is listed"


def test_an_op_never_measured_takes_its_roof_and_a_launch() -> None:
    bare = ceilings(bytes_per_s=1e9, measured=False)
    step = ledger.decode(SPEC, 20, formats=FP32)
    launches = 2 * (4 + 2 + 1 + 1 + 1 + 2) + 3  # linears, norms, rotary, attention, swiglu, residuals; three outside
    assert expected_ns(step, bare, "fp32") == pytest.approx(step.bytes.total + 7.0 * launches)


def test_no_op_is_expected_to_beat_its_own_roof() -> None:
    slow = ceilings(bytes_per_s=4e9)  # a float a nanosecond
    step = ledger.decode(SPEC, 20, formats=FP32)
    layer = 128 + 64 + 256 + 128  # every linear reads longer than the 100, 50, 200 and 110 ns it was measured at
    layer += 2 * 20 + 15 + 12 + 2 * 5  # the rest moves less than its time
    layer += 20 * 2 * 4  # attention: 19 positions read and one written, keys and values of 4, against 45 ns
    by_hand = 30 + 2 * layer + 20 + (8 * 32 + 32)  # the head reads its matrix and writes 32 logits
    assert expected_ns(step, slow, "fp32") == pytest.approx(by_hand)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 127), st.integers(1, 8), st.floats(1e6, 1e14), st.floats(1e6, 1e16), st.booleans())
def test_line_three_never_lies_below_line_two(
    context: int, batch: int, bytes_per_s: float, peak: float, measured: bool
) -> None:
    lines = predictor(SPEC, ceilings(bytes_per_s=bytes_per_s, peak=peak, measured=measured), None, FP32, batch=batch)
    for step in (lines.decode(context), lines.prefill(context)):
        assert step.predicted_ns.expected >= step.predicted_ns.measured_roof > 0


@pytest.mark.parametrize("model_id", catalogue.ids())
def test_every_catalogue_model_gets_its_lines_in_the_right_order(model_id: str) -> None:
    """Also those this machine could not hold: a prediction needs no weights."""
    card = hardware.from_form({"name": "A card", "bandwidth_bytes_per_s": 1e13, "bf16_flops_per_s": 1e16})
    known = ceilings(bytes_per_s=2e10).model_copy(update={"peak_flops_per_s": {"bf16": 1e12}})
    lines = predictor(catalogue.load(model_id), known, card, Formats(), batch=2)
    for step in (lines.prefill(100), lines.decode(101)):
        three = step.predicted_ns
        assert three.datasheet is not None
        assert 0 < three.datasheet < three.measured_roof <= three.expected


# ---- what binds ----------------------------------------------------------------------------------------------------


def test_what_binds_is_the_largest_term() -> None:
    step = ledger.decode(SPEC, 20, formats=FP32)
    launches = predict_step(step, ceilings(), "fp32")
    assert launches.bound == "launches"
    # Starting an op: a launch for a linear, its one-row time for the rest, attention at its shortest context.
    assert launches.launches_ns == pytest.approx(30 + 20 + 7 + 2 * (4 * 7 + 2 * 20 + 15 + 12 + 2 * 5 + 40))
    assert predict_step(step, ceilings(bytes_per_s=1e6), "fp32").bound == "memory"
    assert predict_step(step, ceilings(peak=1e6), "fp32").bound == "compute"


# ---- before the run ------------------------------------------------------------------------------------------------


def test_answers_are_kept_and_prepare_asks_for_every_step_of_the_run() -> None:
    lines = predictor(SPEC, ceilings(), None, FP32)
    lines.prepare(prompt_tokens=20, new_tokens=4)
    assert lines.prefill.cache_info().currsize == 1
    assert lines.decode.cache_info().currsize == 3
    assert lines.decode(21) is lines.decode(21)
    lines.decode(23)
    assert lines.decode.cache_info().currsize == 3, "21, 22 and 23 are the contexts of tokens 2 to 4"


def test_predicting_needs_no_torch() -> None:
    script = "import sys, engine.expected; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
