"""A run that waits for nothing writes what the synchronised one writes; a step with its position in a tensor too."""

from __future__ import annotations

import pytest
import torch

from engine.clock import clock_for, marks_for
from engine.errors import LabError
from engine.free_run import free_run
from engine.generate import generate
from engine.model import load
from engine.model.decoder import Decoder
from engine.model.graph import StaticStep

PROMPT = list(range(3, 20))


@pytest.fixture(scope="module")
def model() -> Decoder:
    found = load("tiny-3.7m", max_tokens=64)
    assert isinstance(found, Decoder)
    return found


@pytest.mark.parametrize("batch", [1, 3])
def test_both_ways_write_the_same(model: Decoder, batch: int) -> None:
    freely = free_run(model, PROMPT, max_new_tokens=12, batch=batch)
    steps = list(generate(model, PROMPT, max_new_tokens=12, clock=clock_for("cpu"), batch=batch))
    assert freely.token_ids == [step.token_ids[0] for step in steps]
    assert len(freely.step_ns) == 11
    assert all(time_ns > 0 for time_ns in freely.step_ns)


def test_marks_are_there_for_the_devices_that_have_a_queue_to_mark() -> None:
    marks = marks_for("cpu")
    for _ in range(4):
        marks.mark()
    assert len(marks.gaps_ns()) == 3
    with pytest.raises(LabError, match="mps"):
        marks_for("mps")


@torch.inference_mode()
def test_a_step_whose_position_is_on_the_device_is_the_ordinary_step(model: Decoder) -> None:
    """What a CUDA graph records, run eagerly: the places not yet filled must not be seen."""
    ids = torch.tensor([PROMPT, PROMPT[::-1]])

    def ordinary() -> list[torch.Tensor]:
        return [model.prefill(ids, positions=40), *(model.decode(ids[:, step]) for step in range(5))]

    def static() -> list[torch.Tensor]:
        found = [model.prefill(ids, positions=40)]
        model.cache.storage[..., len(PROMPT) :, :] = 50.0  # what an earlier run left there
        step = StaticStep(model)
        for index in range(5):
            step.position.fill_(model.cache.take(1))
            step.ids.copy_(ids[:, index])
            found.append(step())
        return found

    for expected, got in zip(ordinary(), static(), strict=True):
        assert (expected - got).abs().max() / expected.abs().max() < 1e-5
