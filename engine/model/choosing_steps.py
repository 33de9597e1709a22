"""Up to how many rows a dense decoder's whole step is the compiled kernels': measured once a machine, and remembered.

As `engine.model.choosing` does for single products, whose measurement does not decide this: what a compiled step gains
beside its products counts as well. Both ways read the same few layers, other ones each time, when a model is loaded.
What the cache is held in hardly matters to a prompt of 64 tokens: what was found for one format holds for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine.model import contest
from engine.model.choosing import part_of
from engine.model.decoder import Decoder
from engine.model.few_rows import TRIED_ROWS
from engine.model.linear import Linear, linears_in

if TYPE_CHECKING:
    from engine.model.compiled import CompiledSteps

ALWAYS = (1, 2, 4, 8)
"""The kernels' in any case: what such a step costs is reading the weights, and no library reads them faster."""
WALKED = 1 << 23
"""Weights that are walked at a time; a model with larger layers has one walked."""
VOCABULARY = 16
"""Rows of the head that are walked: it is read for one row a sequence either way."""


@torch.inference_mode()
def settle(steps: CompiledSteps) -> None:
    """Decide for all decoders whose steps are like these, if that is not decided yet."""
    choice = steps.choice
    if choice.decided:
        return
    won = contest.known().get(choice.key, [])
    if len(won) < len(ALWAYS) or won != list(TRIED_ROWS[: len(won)]):  # nothing, or what this does not find
        won = _measured(steps)
        contest.keep({choice.key: won})
    choice.decide(won)


def _measured(steps: CompiledSteps) -> list[int]:
    """The numbers of rows that the kernels are to take, up to the last before the first that they lose."""
    won, walks = list(ALWAYS), _walks(steps)
    for rows in TRIED_ROWS[len(won) :]:
        ids = torch.zeros(1, rows, dtype=torch.long)
        if contest.kernels_lose([_by_kernels, _by_torch], walks, ids):
            break
        won.append(rows)
    return won


def _by_kernels(decoder: Decoder, ids: Tensor) -> Tensor:
    decoder.reset()
    return decoder.by_kernels(ids)


def _by_torch(decoder: Decoder, ids: Tensor) -> Tensor:
    decoder.reset()
    return decoder.by_torch(ids)


def _walks(steps: CompiledSteps) -> Iterator[Decoder]:
    """Decoders of a few of the layers each, one behind the other and again from the first."""
    each = sum(linear.shape[0] * linear.shape[1] for linear in linears_in(steps.layers[0]))
    count = max(1, min(len(steps.layers), WALKED // each))
    firsts = range(0, len(steps.layers) - count + 1, count)[: 2 * (1 + contest.SAMPLES)]
    return cycle([_walk(steps, first, count) for first in firsts])


def _walk(steps: CompiledSteps, first: int, count: int) -> Decoder:
    vocabulary = min(VOCABULARY, steps.spec.vocab_size)
    head = part_of(Linear.of(steps.outer.embedding), slice(0, vocabulary))
    decoder = Decoder(
        replace(steps.spec, layers=steps.spec.layers[first : first + count], vocab_size=vocabulary),
        embedding=head.weight if head.packed is None else head.packed,
        layers=steps.layers[first : first + count],
        norm=steps.outer.norm,
        head=head,
        max_tokens=TRIED_ROWS[-1],
        kv=steps.kv,
    )
    decoder.prefill(torch.zeros(1, 1, dtype=torch.long))  # a cache with a place for every row
    return decoder
