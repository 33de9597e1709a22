"""A run in numbers and in words, against values worked out by hand or by numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import MB, ceilings, run, step

from engine.judging import ceilings_spreads, compute_ns, flags, memory_ns, probe_moved, run_flags, unsteady
from engine.record import PredictedNs, Probe, Step
from engine.summary import percentile, summarise
from engine.verdict import amount, duration, percent, verdict

MACHINE = ceilings()


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=60), st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], percent_: float) -> None:
    assert percentile(values, percent_) == pytest.approx(float(np.percentile(values, percent_)), rel=1e-9)


def test_summary_by_hand() -> None:
    steps = [step(0, 40_000_000), step(1, 25_000_000), step(2, 24_000_000), step(3, 30_000_000)]
    summary = summarise(steps, batch=3, multiplication="fp32", ceilings=MACHINE, datasheet_bytes_per_s=36e9)
    # 40 ms of prefill, 0.1 ms of sampling, 0.02 ms of detokenizing.
    assert summary.ttft_ms == pytest.approx(40.12)
    assert summary.tpot_ms is not None
    assert summary.tpot_ms.p50 == pytest.approx(25.0)
    assert summary.tpot_ms.p95 == pytest.approx(29.5)
    assert summary.tpot_ms.p99 == pytest.approx(29.9)
    # Three steps of three tokens in 79 ms of forward passes and 3 x 0.12 ms around them.
    assert summary.tokens_per_s == pytest.approx(9 / 0.07936)
    # 360 MB in 25 ms are 14.4 GB/s, of 18 GB/s.
    assert summary.mbu == pytest.approx(0.8)
    assert summary.mbu_datasheet == pytest.approx(0.4)
    # 200 MFLOP in 40 ms are 5 GFLOP/s, of 100 GFLOP/s.
    assert summary.mfu_prefill == pytest.approx(0.05)
    # |24 - t| / t for 25, 24 and 30 ms: 4 %, 0 % and 20 %.
    assert summary.median_abs_error == pytest.approx(0.04)
    assert summary.flags == []


def test_a_run_without_decode_steps_says_only_what_it_can() -> None:
    summary = summarise([step(0, 40_000_000)], batch=1, multiplication="fp32", ceilings=MACHINE)
    assert summary.ttft_ms == pytest.approx(40.12)
    assert (summary.tpot_ms, summary.tokens_per_s, summary.mbu, summary.median_abs_error) == (None, None, None, None)
    assert (
        summary.verdict == "Reading the prompt took 40 ms, 10 ms for each of its 4 tokens; no decode step was measured."
    )


def test_mbu_takes_the_bandwidth_of_the_working_set() -> None:
    small = step(1, 100_000, weights=500_000, kv_read=0)
    assert small.working_set_bytes == 1_500_000
    fast = summarise([small], batch=1, multiplication="fp32", ceilings=MACHINE).mbu
    slow = summarise(
        [small.model_copy(update={"working_set_bytes": 100 * MB})], batch=1, multiplication="fp32", ceilings=MACHINE
    ).mbu
    assert fast is not None
    assert slow is not None
    assert slow == pytest.approx(1_500_000 / 100e-6 / 18e9)
    assert fast < slow / 4


def lines(roof: float, datasheet: float | None = None) -> PredictedNs:
    return PredictedNs(datasheet=datasheet, measured_roof=roof, expected=roof)


@pytest.mark.parametrize(
    ("time_ns", "expected"),
    [
        (20_000_000, []),
        # The ceiling's own spread at 360 MB is 5 %: 19 ms is the limit, and not below it.
        (19_000_001, []),
        (18_999_999, ["beats_roof"]),
    ],
)
def test_a_step_below_the_roof_by_more_than_its_spread_is_flagged(time_ns: int, expected: list[str]) -> None:
    assert flags(step(1, time_ns), MACHINE, "fp32") == expected


def test_a_compute_bound_step_is_judged_by_the_peaks_spread() -> None:
    heavy = step(0, 985_000_000, flops=100_000_000_000, predicted_ns=lines(1e9))
    assert compute_ns(heavy, MACHINE, "fp32") == pytest.approx(1e9)
    assert flags(heavy, MACHINE, "fp32") == ["beats_roof"]  # 1 % of spread, not 5 %
    assert flags(heavy.model_copy(update={"time_ns": 991_000_000}), MACHINE, "fp32") == []


def test_a_step_is_judged_by_the_peak_of_its_own_formats() -> None:
    """100 GFLOP in 0.5 s: twice what fp32 reaches here, and what products with int8 weights do."""
    machine = ceilings(peak_flops_per_s={"fp32": 100e9, "fp32 × int8": 200e9})
    heavy = step(0, 500_000_000, flops=100_000_000_000, predicted_ns=lines(5e8))
    assert flags(heavy, machine, "fp32") == ["beats_roof"]
    assert flags(heavy, machine, "fp32 × int8") == []
    run = summarise([heavy], batch=1, multiplication="fp32 × int8", ceilings=machine)
    assert run.mfu_prefill == pytest.approx(1.0)


def test_a_mixture_is_judged_by_the_experts_it_read_and_not_by_those_expected() -> None:
    """The lines expected twice the bytes that moved (360 MB, 20 ms): half of them is the limit."""
    expected_more = lines(40e6, 30e6)
    assert flags(step(1, 19_500_000, predicted_ns=expected_more), MACHINE, "fp32") == []
    assert flags(step(1, 16_000_000, predicted_ns=expected_more), MACHINE, "fp32") == ["beats_roof"]
    assert flags(step(1, 14_000_000, predicted_ns=expected_more), MACHINE, "fp32") == ["beats_roof", "beats_datasheet"]


def test_below_the_datasheet_at_all_is_flagged() -> None:
    sheet = lines(20e6, 25e6)
    assert flags(step(1, 24_999_999, predicted_ns=sheet), MACHINE, "fp32") == ["beats_datasheet"]
    assert flags(step(1, 25_000_000, predicted_ns=sheet), MACHINE, "fp32") == []


def test_a_step_is_judged_by_its_own_bytes_and_not_by_the_roof_it_names() -> None:
    assert flags(step(1, 15_000_000, predicted_ns=lines(1.0)), MACHINE, "fp32") == ["beats_roof"]
    assert flags(step(1, 15_000_000, predicted_ns=lines(20e6)), None, "fp32") == ["beats_roof"]
    assert flags(step(1, 15_000_000, predicted_ns=lines(1.0)), None, "fp32") == []


def test_spreads_are_steady_until_half_of_the_figure() -> None:
    assert unsteady([]) is None
    assert unsteady([0.02, 0.49]) is None
    assert unsteady([0.02, 3.0, 0.6]) == 3.0
    assert ceilings_spreads(MACHINE) == [0.02, 0.05, 0.01, 0.0]


def test_a_moved_probe_disturbs_the_run_and_not_its_steps() -> None:
    moved = Probe(before_ns=7_000_000, after_ns=9_800_000, load=None, moved=probe_moved(7_000_000, 9_800_000))
    assert moved.moved == pytest.approx(0.4)
    assert run_flags([step(1, 25_000_000)], moved, MACHINE) == ["disturbed"]
    words = verdict([step(1, 25_000_000)], batch=1, multiplication="fp32", ceilings=MACHINE, probe=moved)
    assert [str(word) for word in words] == [
        "Disturbed run: a token took 25 ms, and what that went to cannot be said.",
        "The control measurement was 40 % slower after the run than before it.",
    ]
    still = Probe(before_ns=7_000_000, after_ns=7_700_000, load=None, moved=probe_moved(7_000_000, 7_700_000))
    assert run_flags([step(1, 25_000_000)], still, MACHINE) == []


@pytest.mark.parametrize(
    ("before_ns", "sentence"),
    [
        (8_000_000, None),
        (
            10_500_000,
            "Before this run the machine was 50 % slower than when it was measured.",
        ),
        (
            3_500_000,
            "Before this run the machine was 50 % faster than when it was measured, so measure it again.",
        ),
    ],
)
def test_a_machine_that_is_not_as_it_was_measured_is_said(before_ns: int, sentence: str | None) -> None:
    """The ceilings' own probe took 7 ms."""
    probe = Probe(before_ns=before_ns, after_ns=before_ns, load=None)
    measured = [step(1, 25_000_000)]
    assert run_flags(measured, probe, MACHINE) == (["disturbed"] if sentence else [])
    words = [str(each) for each in verdict(measured, batch=1, multiplication="fp32", ceilings=MACHINE, probe=probe)]
    assert words[1:] == ([sentence] if sentence else [])
    assert words[0].startswith("Disturbed run: a token took" if sentence else "A token takes")
    assert run_flags(measured, probe, ceilings(probe_ns=0)) == []  # ceilings of before there was a probe


def test_other_programs_disturb_a_run_that_both_probes_missed() -> None:
    still = Probe(before_ns=7_000_000, after_ns=7_000_000, load=None, other_cores=1.02)
    measured = [step(1, 25_000_000)]
    assert run_flags(measured, still, MACHINE) == ["disturbed"]
    words = verdict(measured, batch=4, multiplication="fp32", ceilings=MACHINE, probe=still)
    assert [str(word) for word in words] == [
        "Disturbed run: a step of 4 tokens took 25 ms, and what that went to cannot be said.",
        "During this run other programs used 1.0 of the processor's cores.",
    ]
    assert run_flags(measured, still.model_copy(update={"other_cores": 0.1}), MACHINE) == []


@pytest.mark.parametrize("changes", [{"probe_moved": -0.35}, {"other_cores": 0.9}])
def test_ceilings_measured_on_a_busy_machine_are_not_believed(changes: dict[str, float]) -> None:
    busy = ceilings().model_copy(update=changes)
    measured = [step(1, 25_000_000)]
    assert run_flags(measured, None, busy) == ["disturbed"]
    words = [str(word) for word in verdict(measured, batch=1, multiplication="fp32", ceilings=busy)]
    assert words[0] == "Disturbed run: a token took 25 ms, and what that went to cannot be said."
    assert words[1].startswith("The machine was busy when it was measured")


# ---- the verdict ---------------------------------------------------------------------------------


def decode_verdict(measured: Step, *, batch: int = 1) -> str:
    return str(verdict([measured], batch=batch, multiplication="fp32", ceilings=MACHINE)[0])


def test_weights_bind() -> None:
    # 356 of 360 MB at 18 GB/s: 19.8 ms.
    assert decode_verdict(step(1, 25_000_000)) == (
        "A token takes 25 ms; 20 ms of it is reading 356 MB of weights; the KV cache is 1 %; "
        "this machine cannot read faster than 18 GB/s."
    )


def test_the_cache_binds() -> None:
    long = step(1, 25_000_000, weights=100 * MB, kv_read=259 * MB)
    assert decode_verdict(long) == (
        "A token takes 25 ms; 14 ms of it is reading and writing 260 MB of KV cache; the weights are 28 %; "
        "this machine cannot read faster than 18 GB/s."
    )


def test_arithmetic_binds() -> None:
    heavy = step(1, 120_000_000, flops=10_000_000_000)
    assert decode_verdict(heavy, batch=50) == (
        "A step of 50 tokens takes 120 ms; 100 ms of it is 10 GFLOP of arithmetic, and this machine was measured "
        "to do no more than 100 GFLOP/s; moving its 360 MB would take 20 ms."
    )


def test_launches_bind() -> None:
    tiny = step(1, 900_000, weights=MB, kv_read=0, flops=2 * MB, bound="launches", predicted_ns=lines(800_000))
    assert memory_ns(tiny, MACHINE) == pytest.approx(2 * MB / 87.66e9 * 1e9, rel=1e-3)
    assert decode_verdict(tiny) == (
        "A token takes 900 µs, but moving its 2.0 MB takes only 23 µs at the 88 GB/s this machine reads: "
        "the other 877 µs go mostly into starting one small operation after another."
    )


def test_what_is_lost_elsewhere_is_not_called_launches() -> None:
    slow = step(1, 100_000_000, bound="memory", predicted_ns=lines(70e6))
    assert decode_verdict(slow) == (
        "A token takes 100 ms, but its bytes and its arithmetic need only 20 ms on this machine: the other 80 ms "
        "are lost in kernels that stay below the roof."
    )


def test_what_nothing_explains_is_not_explained() -> None:
    assert decode_verdict(step(1, 100_000_000, bound="launches")) == (
        "A token takes 100 ms; by what was measured here before, it should take 24 ms: something held the machine up, "
        "so run it again when nothing else runs."
    )


def test_the_impossible_is_said_and_not_explained_away() -> None:
    fast = step(1, 10_000_000, flags=["beats_roof"])
    words = [str(each) for each in verdict([fast], batch=1, multiplication="fp32", ceilings=MACHINE)]
    assert words[0] == (
        "A token takes 10 ms, less than the 20 ms that its 360 MB and 200 MFLOP need at the rates measured here: "
        "measure this machine again before trusting this run."
    )
    assert words[1] == "1 of 1 steps lie below the measured roof: its ceilings or the clock are wrong."


def test_within_the_spread_no_part_is_longer_than_the_whole() -> None:
    assert "A token takes 20 ms; 19 ms of it is reading" in decode_verdict(step(1, 19_500_000))


def test_every_sentence_can_be_said_from_its_template() -> None:
    summary = run().summary
    assert summary is not None
    assert summary.verdict == " ".join(map(str, summary.verdict_sentences))
    assert all(isinstance(value, str | int) for each in summary.verdict_sentences for value in each.params.values())


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (duration(31_400_000), "31 ms"),
        (duration(4_560_000), "4.6 ms"),
        (duration(9_960_000), "10 ms"),
        (duration(999_600), "1.0 ms"),
        (duration(830_000), "830 µs"),
        (duration(2_300_000_000), "2.3 s"),
        (duration(12), "12 ns"),
        (amount(538_060_000, "B"), "538 MB"),
        (amount(999_900_000, "B"), "1.0 GB"),
        (amount(1.1e12, "FLOP/s"), "1.1 TFLOP/s"),
        (percent(0.283), "28 %"),
        (percent(0.0096), "1 %"),
        (percent(0.0012), "0.1 %"),
    ],
)
def test_numbers_as_people_read_them(shown: str, expected: str) -> None:
    assert shown == expected
