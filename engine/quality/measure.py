"""Measures `Quality`: the same texts through a model in fp32 and in other formats, one decode step a token.

Step by step and not as one prefill, because it is the kernels of decode steps that read the weights in their format.
Worker-side (it imports torch).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from engine import checkpoint
from engine import device as devices
from engine import tokenizer as tokenizers
from engine.model import Model, load
from engine.quality import TEXTS, Language, Quality

OPENING_TOKENS = 24
GREEDY_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Reading:
    """What a model made of one text: the likelihood of each next token (natural logarithm), and its own choice."""

    log_likelihoods: list[float]
    choices: list[int]

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood."""
        return math.exp(-sum(self.log_likelihoods) / len(self.log_likelihoods))


def measure(
    name: str,
    formats: Sequence[tuple[str, str]],
    *,
    device: str | None = None,
    told: Callable[[str, str], None] = lambda weights, kv: None,
) -> list[Quality]:
    """One `Quality` for each pair of formats. Models are loaded one after another; about 700 steps each.

    Args:
        name: a model as `engine.checkpoint` knows it; with random weights the figures say nothing.
        formats: of weights, and of the KV cache.
        device: as `engine.device.choose`.
        told: called with each pair before it is measured, fp32 for both first.

    Raises:
        LabError: the model cannot be loaded, or not in this format.
    """
    source = checkpoint.ensure(name)
    tokenizer = tokenizers.load(source)
    ids = {language: tokenizer.encode(text) for language, text in TEXTS.items()}
    place = str(devices.choose(device))

    def run(weights: str, kv: str) -> tuple[dict[Language, Reading], list[int]]:
        told(weights, kv)
        model = load(source, device=place, dtype="float32", weights=weights, kv=kv)
        return {language: read(model, tokens) for language, tokens in ids.items()}, write(model, ids["en"])

    reference, written = run("fp32", "fp32")
    found = []
    for weights, kv in formats:
        readings, answer = run(weights, kv)
        found.append(
            Quality(
                model=source.id,
                weights_hash=source.weights_hash(),
                weights=weights,
                kv=kv,
                tokens={language: len(tokens) for language, tokens in ids.items()},
                perplexity={language: reading.perplexity for language, reading in readings.items()},
                perplexity_fp32={language: reading.perplexity for language, reading in reference.items()},
                agreement={language: agreement(readings[language], reference[language]) for language in ids},
                greedy_tokens=GREEDY_TOKENS,
                greedy_same=same_from_the_start(answer, written),
            )
        )
    return found


def read(model: Model, ids: Sequence[int]) -> Reading:
    """Give the model a text token by token, and note what it expected each time."""
    tokens = torch.tensor([ids], device=model.device)
    logits = model.prefill(tokens[:, :1], positions=len(ids))
    likelihoods, choices = [], []
    for position in range(1, len(ids)):
        likelihoods.append(float(logits.log_softmax(-1)[0, ids[position]]))
        choices.append(int(logits.argmax(-1)))
        logits = model.decode(tokens[:, position])
    return Reading(likelihoods, choices)


def write(model: Model, ids: Sequence[int]) -> list[int]:
    """What the model writes behind a text's opening, always taking the likeliest token."""
    prompt = torch.tensor([ids[:OPENING_TOKENS]], device=model.device)
    logits = model.prefill(prompt, positions=OPENING_TOKENS + GREEDY_TOKENS)
    written = []
    for _ in range(GREEDY_TOKENS):
        written.append(int(logits.argmax(-1)))
        logits = model.decode(torch.tensor(written[-1:], device=model.device))
    return written


def agreement(one: Reading, other: Reading) -> float:
    """The share of positions where both choose the same token."""
    same = [a == b for a, b in zip(one.choices, other.choices, strict=True)]
    return sum(same) / len(same)


def same_from_the_start(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that are the same before the first that differs."""
    differing = (index for index, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return next(differing, len(one))
