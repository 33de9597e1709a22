"""From logits to the next token: greedy, or drawn with temperature, top-k, top-p and min-p.

The order is fixed: temperature, then top-k, then top-p, then min-p, each on what the one before it
left. It is the order of transformers' `generate`, so the same settings mean the same distribution.

Greedy choice stays on the device. Draws happen on the CPU, from a generator of each sequence's own:
the same seed gives the same tokens on every device, whatever else is in the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.errors import LabError


class Sampler:
    """Chooses one token per sequence; keeps one random generator per sequence.

    temperature: 0 is greedy, and the other settings then have no effect.
    top_k: keep the k most likely tokens; 0 keeps all.
    top_p: keep the smallest set of most likely tokens whose probability reaches p; 1 keeps all.
    min_p: keep tokens at least p times as likely as the likeliest; 0 keeps all.
    """

    def __init__(
        self,
        *,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        seed: int = 0,
    ) -> None:
        if not (math.isfinite(temperature) and temperature >= 0):
            raise LabError("Temperature is {value}; it has to be 0 (greedy) or a positive number.", value=temperature)
        if top_k < 0:
            raise LabError("Top-k is {value}; it has to be 0 (all tokens) or more.", value=top_k)
        if not 0 < top_p <= 1:
            raise LabError("Top-p is {value}; it has to be above 0 and at most 1.", value=top_p)
        if not 0 <= min_p <= 1:
            raise LabError("Min-p is {value}; it has to lie between 0 and 1.", value=min_p)
        self.temperature, self.top_k, self.top_p, self.min_p = temperature, top_k, top_p, min_p
        self.seed = seed
        self._generators: list[torch.Generator] = []

    def restart(self) -> None:
        """Begin every sequence's random numbers again from the seed."""
        self._generators.clear()

    def sample(self, logits: Tensor) -> list[int]:
        """The next token of each sequence.

        Args:
            logits: [B, V], fp32.

        Raises:
            LabError: a logit is not a number, which only broken weights or an overflow produce.
        """
        best = logits.max(dim=-1)
        if not bool(torch.isfinite(best.values).all()):
            raise LabError("The model produced scores that are not numbers; its weights or its dtype are at fault.")
        if self.temperature == 0:
            return [int(token) for token in best.indices.tolist()]
        probabilities = self.probabilities(logits.cpu())
        generators = self._generators_for(len(probabilities))
        draws = [torch.multinomial(row, 1, generator=g) for row, g in zip(probabilities, generators, strict=True)]
        return [int(draw.item()) for draw in draws]

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution a draw is made from: [B, V] in, [B, V] out, rows adding up to 1."""
        scores = logits.float()
        # Measured from the likeliest, so that a tiny temperature cannot overflow.
        scores = (scores - scores.amax(dim=-1, keepdim=True)) / self.temperature
        if self.top_k:
            scores = keep_top_k(scores, self.top_k)
        if self.top_p < 1:
            scores = keep_top_p(scores, self.top_p)
        if self.min_p > 0:
            scores = keep_min_p(scores, self.min_p)
        return scores.softmax(dim=-1)

    def _generators_for(self, batch: int) -> Sequence[torch.Generator]:
        while len(self._generators) < batch:
            # A seed sequence, because seeds s and s + 1 of neighbouring sequences must not give one stream twice.
            mixed = np.random.SeedSequence([self.seed % 2**64, len(self._generators)]).generate_state(1, np.uint64)[0]
            self._generators.append(torch.Generator().manual_seed(int(mixed >> np.uint64(1))))
        return self._generators[:batch]


def keep_top_k(scores: Tensor, k: int) -> Tensor:
    """Scores [B, V] with all but the k highest of each row at -inf (ties with the k-th stay)."""
    threshold = scores.topk(min(k, scores.shape[-1]), dim=-1).values[:, -1:]
    return scores.masked_fill(scores < threshold, -math.inf)


def keep_top_p(scores: Tensor, p: float) -> Tensor:
    """Scores [B, V] with the tail of each row beyond cumulative probability p at -inf.

    A token stays while the probability of all likelier tokens together is below p, so that the one
    that crosses p stays too (nucleus sampling, Holtzman et al., 2020).
    """
    descending, order = scores.sort(dim=-1, descending=True)
    probabilities = descending.softmax(dim=-1)
    in_tail = probabilities.cumsum(dim=-1) - probabilities >= p
    drop = torch.empty_like(in_tail).scatter_(-1, order, in_tail)
    return scores.masked_fill(drop, -math.inf)


def keep_min_p(scores: Tensor, p: float) -> Tensor:
    """Scores [B, V] with tokens less likely than p times the likeliest at -inf (Nguyen et al., 2024)."""
    probabilities = scores.softmax(dim=-1)
    return scores.masked_fill(probabilities < p * probabilities.amax(dim=-1, keepdim=True), -math.inf)
