"""The two phases: how many steps, what each says of itself, when they end, and what the clock sees."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_helpers import engine_of, reference

from engine.clock import CpuClock
from engine.errors import LabError
from engine.generate import RawStep, generate, warm_up
from engine.model import Model
from engine.sampling import Sampler

PROMPT = [5, 17, 200, 17, 9, 31]


@pytest.fixture(scope="module")
def theirs() -> Any:
    return reference("llama")


@pytest.fixture
def model(theirs: Any) -> Model:
    return engine_of(theirs)


def run(model: Model, count: int, **settings: Any) -> list[RawStep]:
    return list(generate(model, PROMPT, max_new_tokens=count, clock=CpuClock(), **settings))


def column(steps: list[RawStep], row: int = 0) -> list[int]:
    return [step.token_ids[row] for step in steps]


def test_greedy_tokens_equal_transformers(model: Model, theirs: Any) -> None:
    expected = theirs.generate(
        torch.tensor([PROMPT]), max_new_tokens=24, min_new_tokens=24, do_sample=False, pad_token_id=0
    )
    assert column(run(model, 24)) == expected[0, len(PROMPT) :].tolist()


def test_one_prefill_then_a_decode_a_token(model: Model) -> None:
    steps = run(model, 4, batch=2)
    assert [(s.index, s.phase, s.tokens, s.context) for s in steps] == [
        (0, "prefill", 6, 6),
        (1, "decode", 1, 7),
        (2, "decode", 1, 8),
        (3, "decode", 1, 9),
    ]
    assert [s.stopped_by for s in steps] == [None, None, None, "length"]
    assert all(len(s.token_ids) == len(s.ended) == 2 and not any(s.ended) for s in steps)
    assert all(s.time_ns > 0 and s.host_ns >= s.time_ns and s.sample_ns > 0 for s in steps)


def test_the_cache_has_a_place_for_every_token_that_is_fed_back_and_no_more(model: Model) -> None:
    run(model, 4)
    # The last token is never read again, so it needs no place.
    assert model.cache.positions == model.cache.length == len(PROMPT) + 4 - 1


def test_stops_at_an_end_of_sequence_token(model: Model) -> None:
    free = column(run(model, 12))
    stop = free[5]
    steps = run(model, 12, stop_ids=[stop])
    assert column(steps) == free[: free.index(stop) + 1]
    assert steps[-1].stopped_by == "end_of_sequence"
    assert steps[-1].ended == [True]


def test_an_ended_sequence_keeps_stepping_and_repeats_its_last_token(model: Model) -> None:
    settings = {"batch": 2, "sampler": Sampler(temperature=1.5, seed=1)}
    free = run(model, 12, **settings)
    stop = next(token for token in column(free, 0)[:6] if token not in column(free, 1))
    steps = run(model, 12, stop_ids={stop}, **settings)
    first = column(free, 0).index(stop)
    assert column(steps, 0) == column(free, 0)[:first] + [stop] * (12 - first)
    assert column(steps, 1) == column(free, 1)
    assert [s.ended for s in steps] == [[index >= first, False] for index in range(12)]
    assert steps[-1].stopped_by == "length"


@pytest.mark.parametrize(("limit", "count"), [(10, 5), (6, 1)])
def test_stops_at_the_context_limit_and_says_so(theirs: Any, limit: int, count: int) -> None:
    steps = run(engine_of(theirs, max_tokens=limit), 50)
    assert len(steps) == count
    assert steps[-1].context == limit
    assert steps[-1].stopped_by == "context_limit"


def test_a_cancel_takes_effect_in_the_step_it_falls_into(model: Model) -> None:
    answers = iter([False, False, True])
    steps = run(model, 50, should_stop=lambda: next(answers))
    assert [s.stopped_by for s in steps] == [None, None, "cancelled"]


def test_nothing_but_the_forward_pass_is_timed(model: Model) -> None:
    inside: list[bool] = [False]

    class Watching(CpuClock):
        def time(self, work: Callable[[], Any]) -> tuple[Any, int, int]:
            inside[0] = True
            assert not gc.isenabled()
            found = super().time(work)
            inside[0] = False
            return found

    class Outside(Sampler):
        def sample(self, logits: torch.Tensor) -> list[int]:
            assert not inside[0]
            assert gc.isenabled()
            return super().sample(logits)

    for step in generate(model, PROMPT, max_new_tokens=3, clock=Watching(), sampler=Outside()):
        assert gc.isenabled(), step


def test_sampled_runs_repeat_from_their_seed(model: Model) -> None:
    sampler = Sampler(temperature=1.0, seed=4)
    first = column(run(model, 10, sampler=sampler))
    assert column(run(model, 10, sampler=sampler)) == first
    assert column(run(model, 10, sampler=Sampler(temperature=1.0, seed=5))) != first


def test_warm_up_takes_the_first_steps_of_the_run_in_the_same_cache(model: Model, theirs: Any) -> None:
    warmed = list(warm_up(model, PROMPT, max_new_tokens=20, batch=2, clock=CpuClock()))
    assert [s.phase for s in warmed] == ["prefill", "decode", "decode", "decode"]
    cache = model.cache
    steps = run(model, 20, batch=2)
    assert model.cache is cache
    assert cache.positions == len(PROMPT) + 19
    assert column(steps) == column(run(engine_of(theirs), 20, batch=2))


def test_warm_up_is_never_longer_than_the_run(model: Model) -> None:
    assert len(list(warm_up(model, PROMPT, max_new_tokens=2, clock=CpuClock()))) == 2


@pytest.mark.parametrize(
    ("prompt", "settings", "says"),
    [
        ([], {}, "at least one token"),
        ([1] * 257, {}, "at most 256"),
        ([1, 257], {}, "vocabulary of 257"),
        ([-1], {}, "vocabulary of 257"),
        ([1], {"max_new_tokens": 0}, "at least 1"),
        ([1], {"batch": 0}, "at least 1"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    model: Model, prompt: list[int], settings: dict[str, int], says: str
) -> None:
    asked = {"max_new_tokens": 4, **settings}
    with pytest.raises(LabError, match=says):
        generate(model, prompt, clock=CpuClock(), **asked)
    with pytest.raises(LabError, match=says):
        warm_up(model, prompt, clock=CpuClock(), **asked)
