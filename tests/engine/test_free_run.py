"""A run that waits for nothing makes the steps of one that waits; so does a step with its position in a tensor."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch
from family_helpers import CONFIGS

from engine import fitting, spec
from engine.clock import clock_for, marks_for
from engine.errors import LabError
from engine.free_run import free_run
from engine.generate import RawStep, generate
from engine.model import Model, load
from engine.model.decoder import Decoder
from engine.model.graph import StaticStep, fused, what_compiling_lacks
from engine.random_weights import RandomTensors

PROMPT = list(range(3, 20))


@pytest.fixture(scope="module")
def model() -> Decoder:
    found = load("tiny-3.7m", max_tokens=64)
    assert isinstance(found, Decoder)
    return found


def made(kind: str) -> Model:
    """A tiny model of a family with random weights."""
    tiny = spec.read(CONFIGS[kind]().to_dict())
    return Model.from_tensors(tiny, RandomTensors(fitting.wanted_shapes(tiny), zero_centred=tiny.recipe.zero_centred))


def untimed(steps: list[RawStep]) -> list[RawStep]:
    return [replace(step, time_ns=0, host_ns=0, sample_ns=0) for step in steps]


def waited_for(model: Model, **settings: Any) -> list[RawStep]:
    return list(generate(model, PROMPT, clock=clock_for("cpu"), **settings))


@pytest.mark.parametrize(
    "settings", [{"max_new_tokens": 12}, {"max_new_tokens": 12, "batch": 3}, {"max_new_tokens": 90}]
)
def test_both_ways_make_the_same_steps(model: Decoder, settings: dict[str, int]) -> None:
    freely = free_run(model, PROMPT, **settings)
    assert untimed(freely) == untimed(waited_for(model, **settings))
    assert all(step.time_ns > 0 and step.host_ns > 0 for step in freely)
    assert freely[-1].stopped_by == ("context_limit" if settings["max_new_tokens"] == 90 else "length")


def test_a_state_instead_of_a_cache_makes_the_same_steps_too() -> None:
    model = made("qwen3.5")
    assert untimed(free_run(model, PROMPT, max_new_tokens=6)) == untimed(waited_for(model, max_new_tokens=6))


def test_what_was_written_behind_the_end_of_a_text_is_left_out(model: Decoder) -> None:
    written = [step.token_ids[0] for step in free_run(model, PROMPT, max_new_tokens=12)]
    ended = free_run(model, PROMPT, max_new_tokens=12, batch=2, stop_ids={written[4]})
    assert [step.token_ids[0] for step in ended] == written[: written.index(written[4]) + 1]
    assert (ended[-1].stopped_by, ended[-1].ended) == ("end_of_sequence", [True, True])
    assert untimed(ended) == untimed(waited_for(model, max_new_tokens=12, batch=2, stop_ids={written[4]}))


def test_a_cancel_ends_the_queueing(model: Decoder) -> None:
    answers = iter([False, False, True])
    steps = free_run(model, PROMPT, max_new_tokens=12, should_stop=lambda: next(answers))
    assert [step.stopped_by for step in steps] == [None, None, "cancelled"]


def test_a_model_that_asks_the_host_which_experts_were_chosen_cannot_run_freely() -> None:
    with pytest.raises(LabError, match="experts"):
        free_run(made("mixtral"), PROMPT, max_new_tokens=2)


def test_marks_are_there_for_the_devices_that_have_a_queue_to_mark() -> None:
    marks = marks_for("cpu")
    for _ in range(4):
        marks.mark()
    assert len(marks.gaps_ns()) == 3
    with pytest.raises(LabError, match="mps"):
        marks_for("mps")


@pytest.mark.parametrize("how", ["graph", "compiled"])
def test_no_step_is_recorded_on_a_cpu(model: Decoder, how: Any) -> None:
    with pytest.raises(LabError, match="on cuda, not on cpu"):
        model.use_launches(how)


@pytest.mark.parametrize("compiled", [False, True])
@torch.inference_mode()
def test_a_step_whose_position_is_on_the_device_is_the_ordinary_step(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a CUDA graph records, run eagerly: the places not yet filled must not be seen. And what torch.compile makes
    of it, but for the code it writes at the end, which takes a compiler: that nothing of the step is left to Python,
    and that the cache is written in place.
    """
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    monkeypatch.setenv("ROOFLINE_LAB_KERNELS", "torch")  # as on CUDA, all of a step is torch's
    model = load("tiny-3.7m", max_tokens=64)
    assert isinstance(model, Decoder)
    ids = torch.tensor([PROMPT, PROMPT[::-1]])

    def ordinary() -> list[torch.Tensor]:
        return [model.prefill(ids, positions=40), *(model.decode(ids[:, step]) for step in range(5))]

    def static() -> list[torch.Tensor]:
        found = [model.prefill(ids, positions=40)]
        model.cache.storage[..., len(PROMPT) :, :] = 50.0  # what an earlier run left there
        step = StaticStep(model)
        work = fused(step) if compiled else step
        for index in range(5):
            step.position.fill_(model.cache.take(1))
            step.ids.copy_(ids[:, index])
            found.append(work())
        return found

    for expected, got in zip(ordinary(), static(), strict=True):
        assert (expected - got).abs().max() / expected.abs().max() < 1e-5


def test_what_torch_compile_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.model.graph.find_spec", lambda name: None)
    monkeypatch.setattr("engine.model.graph.shutil.which", lambda name: None)
    assert what_compiling_lacks() == ["Triton", "a C compiler"]
    monkeypatch.setattr("engine.model.graph.shutil.which", lambda name: "/bin/cc")
    assert what_compiling_lacks() == ["Triton"]
