"""Sampling against transformers' logits processors, and draws against the distribution they come from."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers.generation import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.errors import LabError
from engine.sampling import Sampler


def logits(batch: int = 4, vocabulary: int = 300, seed: int = 5) -> torch.Tensor:
    return 3 * torch.randn(batch, vocabulary, generator=torch.Generator().manual_seed(seed))


def reference(scores: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """The distribution transformers' `generate` would draw from, its processors in its own order."""
    processors = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        processors.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        processors.append(TopPLogitsWarper(top_p))
    if min_p:
        processors.append(MinPLogitsWarper(min_p))
    return processors(torch.zeros(len(scores), 1, dtype=torch.long), scores).softmax(-1)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("top_k", [0, 1, 12, 1000])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 0.001])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 1.0])
def test_distribution_equals_transformers(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    scores = logits()
    sampler = Sampler(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    found = sampler.probabilities(scores)
    expected = reference(scores, temperature, min(top_k, scores.shape[1]), top_p, min_p)
    assert torch.equal(found > 0, expected > 0)
    torch.testing.assert_close(found, expected)


def test_draws_follow_the_distribution() -> None:
    """Pearson's chi-square over 20 000 draws of 8 tokens stays below its 99.99th percentile, 31.0 at 7 degrees."""
    scores = logits(batch=1, vocabulary=8)
    sampler = Sampler(temperature=2.0, seed=3)
    count = 20_000
    drawn = torch.tensor([sampler.sample(scores)[0] for _ in range(count)]).bincount(minlength=8)
    expected = count * (scores / 2.0).softmax(-1)[0]
    assert float(((drawn - expected) ** 2 / expected).sum()) < 31.0


def test_greedy_is_the_likeliest_whatever_else_is_set() -> None:
    scores = logits()
    assert Sampler(temperature=0, top_k=3, top_p=0.2).sample(scores) == scores.argmax(-1).tolist()


def _draw(sampler: Sampler, scores: torch.Tensor, times: int = 20) -> list[list[int]]:
    return [sampler.sample(scores) for _ in range(times)]


def test_same_seed_same_tokens_and_restart_begins_again() -> None:
    scores = logits()
    sampler = Sampler(temperature=1.0, seed=11)
    first = _draw(sampler, scores)
    assert _draw(sampler, scores) != first
    sampler.restart()
    assert _draw(sampler, scores) == first
    torch.manual_seed(0)  # the global generator has no say
    assert _draw(Sampler(temperature=1.0, seed=11), scores) == first
    assert _draw(Sampler(temperature=1.0, seed=12), scores) != first


def test_a_sequence_draws_the_same_in_any_batch() -> None:
    scores = logits(batch=1).expand(3, -1)
    alone = [draw[0] for draw in _draw(Sampler(temperature=1.0, seed=7), scores[:1])]
    together = _draw(Sampler(temperature=1.0, seed=7), scores)
    assert [draw[0] for draw in together] == alone
    rows = list(zip(*together, strict=True))
    assert len(set(rows)) == 3  # equal logits, streams of their own
    neighbour = [draw[0] for draw in _draw(Sampler(temperature=1.0, seed=8), scores[:1])]
    assert tuple(neighbour) not in rows


def test_tiny_temperature_is_greedy_and_does_not_overflow() -> None:
    scores = logits()
    assert Sampler(temperature=1e-40).sample(scores) == scores.argmax(-1).tolist()


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_numbers_are_said(broken: float, temperature: float) -> None:
    scores = logits()
    scores[2, 17] = broken
    with pytest.raises(LabError, match="not numbers"):
        Sampler(temperature=temperature).sample(scores)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"top_p": math.nan},
        {"min_p": -0.1},
        {"min_p": 1.1},
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(LabError):
        Sampler(**settings)
