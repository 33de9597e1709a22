"""The method behind every ceiling: calls in turn, medians, spread, and stopping."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.measure import Stopped, Timing, in_turn, repetitions, summarise, trial_ns


class FakeTime:
    """A clock whose calls last what they say; reading it costs nothing."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.log: list[str] = []

    def lasting(self, name: str, durations_ns: list[int]) -> Callable[[], None]:
        left = list(durations_ns)

        def call() -> None:
            self.log.append(name)
            self.now_ns += left.pop(0) if len(left) > 1 else left[0]

        return call

    def elapsed(self, call: Callable[[], object]) -> int:
        started = self.now_ns
        call()
        return self.now_ns - started


def test_median_and_spread_agree_with_numpy() -> None:
    samples = [9.0, 1.0, 4.0, 7.0, 30.0, 5.0]
    low, middle, high = np.percentile(samples, [25, 50, 75])
    assert summarise(samples).time_ns == middle
    assert summarise(samples).spread == pytest.approx((high - low) / 2 / middle)


def test_one_sample_has_no_spread() -> None:
    assert summarise([3.0]) == Timing(3.0, 0.0)


def test_every_round_visits_every_call() -> None:
    time = FakeTime()
    calls = {name: time.lasting(name, [1000]) for name in "abc"}
    in_turn(calls, dict.fromkeys("abc", 1), time.elapsed, rounds=3)
    assert "".join(time.log) == "abcabcabc"


def test_a_sample_is_the_mean_of_its_repetitions_and_the_result_the_median_of_samples() -> None:
    time = FakeTime()
    # One untimed call before each sample of two: (0) 10 30 | (0) 50 50 | (0) 1 3.
    call = time.lasting("a", [0, 10, 30, 0, 50, 50, 0, 1, 3])
    assert in_turn({"a": call}, {"a": 2}, time.elapsed, rounds=3)["a"].time_ns == 20


def test_one_slow_round_does_not_move_the_median() -> None:
    time = FakeTime()
    call = time.lasting("a", [100, 100, 100_000, 100, 100])
    assert in_turn({"a": call}, {"a": 1}, time.elapsed, rounds=5)["a"].time_ns == 100


def test_a_trial_is_the_shorter_of_two_calls_after_an_untimed_one() -> None:
    time = FakeTime()
    assert trial_ns(time.lasting("a", [1, 9000, 3000]), time.elapsed) == 3000
    assert trial_ns(time.lasting("b", [0]), time.elapsed) == 1
    with pytest.raises(Stopped):
        trial_ns(time.lasting("c", [1]), time.elapsed, should_stop=lambda: True)
    assert "c" not in time.log


def test_short_calls_are_repeated_until_a_sample_is_long_enough() -> None:
    assert repetitions(3_000, sample_ns=1_000_000) == 334
    assert repetitions(5_000_000, sample_ns=1_000_000) == 1


def test_a_spent_budget_ends_the_rounds_after_the_third() -> None:
    time = FakeTime()
    told: list[float] = []
    in_turn({"a": time.lasting("a", [10])}, {"a": 1}, time.elapsed, rounds=9, budget_s=0.0, on_share=told.append)
    assert len(time.log) == 3
    assert told == [1 / 9, 2 / 9, 1.0]


def test_rounds_are_told_and_stopping_is_asked_before_each_sample() -> None:
    time = FakeTime()
    told: list[float] = []
    calls = {"a": time.lasting("a", [10]), "b": time.lasting("b", [10])}
    repeat = {"a": 1, "b": 1}
    in_turn(calls, repeat, time.elapsed, rounds=4, on_share=told.append)
    assert told == [0.25, 0.5, 0.75, 1.0]
    time.log.clear()
    with pytest.raises(Stopped):
        in_turn(calls, repeat, time.elapsed, rounds=4, should_stop=lambda: len(time.log) >= 3)
    assert time.log == ["a", "b", "a"]
