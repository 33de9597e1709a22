"""Several tokens checked for one reading of the weights: drafted by prompt lookup, kept where greedy agrees.

The tokens are those of greedy decoding, not nearly those. A pass over several rows may round otherwise than a pass
over one, and where two tokens score almost alike the larger could change sides: there the token is asked for again
with a single row, as greedy does, and what that says counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from engine import lookup
from engine.clock import Clock
from engine.errors import LabError
from engine.lookup import Check
from engine.model import Model
from engine.model.decoder import Decoder

MARGIN = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Logits this close are asked for again, one row at a time: about a hundred times what the two kinds of passes were
seen to differ by."""
PACKED_MARGIN = 0.25
"""The same for packed weights, whose rows are rounded where they are multiplied in whole numbers: passes over 6 and 13
rows of the demo model in int8 differed from single ones by 0.011 at most."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass. `token_ids` are those it yielded; `check` is None for the prefill.

    again: further single rows that close scores asked for; their time is in `time_ns`.
    """

    token_ids: list[int]
    time_ns: int
    check: Check | None
    again: int = 0


def require(model: Model) -> Decoder:
    """The model, if a rejected draft can be taken back from its cache.

    Raises:
        LabError: it keeps a state or a window, from which nothing can be taken back.
    """
    if not isinstance(model, Decoder):
        raise LabError(
            "Drafted tokens can be taken back only from a plain KV cache; this model keeps states or windows too."
        )
    return model


def speculate(
    model: Decoder,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    drafts: int,
    clock: Clock,
    stop_ids: Collection[int] = (),
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Pass]:
    """Write up to `max_new_tokens` tokens, several a pass where drafts agree; one sequence, greedy.

    Args:
        drafts: the most tokens checked beside the last known one; 0 is plain greedy decoding.

    Raises:
        LabError: an empty prompt, or lengths below 1.
    """
    if not prompt_ids or max_new_tokens < 1:
        raise LabError("{count} new tokens were asked for; at least 1 is needed.", count=max_new_tokens)
    known, written = list(prompt_ids), 0
    positions = min(len(prompt_ids) + max_new_tokens + drafts, model.max_tokens)
    prompt = torch.tensor([known], device=model.device)
    logits, time_ns, _ = clock.time(lambda: model.prefill(prompt, positions=positions))
    gained = [int(logits.argmax(-1))]
    yield Pass(gained, time_ns, None)
    while True:
        known, written = known + gained, written + len(gained)
        room = min(max_new_tokens - written, positions - len(known) + 1)
        if room < 1 or gained[-1] in stop_ids or should_stop():
            return
        guess = lookup.draft(known, min(drafts, room - 1)) if drafts else []
        row = torch.tensor([[known[-1], *guess]], device=model.device)
        chosen, time_ns, _ = clock.time(partial(_choose, model, row, guess))
        kept, again = chosen.kept, chosen.again
        model.cache.length = len(known) + kept  # rejected drafts are forgotten; nothing filled is ever read beyond it
        gained = _until_end(chosen.token_ids, stop_ids)
        yield Pass(gained, time_ns, Check(len(guess), kept, len(known) + len(guess)), again)


@dataclass(frozen=True, slots=True)
class _Chosen:
    token_ids: list[int]
    kept: int
    again: int


def _choose(model: Decoder, row: Tensor, guess: list[int]) -> _Chosen:
    """What greedy chooses behind each row, up to the first that is not the drafted token."""
    start = model.cache.length
    logits = model.decode(row[:, 0]) if not guess else model.score(row)[0]
    best = logits.topk(2, dim=-1)
    margin = MARGIN.get(model.dtype, 0.25)
    if model.has_packed_weights:
        margin = max(margin, PACKED_MARGIN)
    close = (best.values[:, 0] - best.values[:, 1] < margin).tolist() if guess else [False]
    ids, again = best.indices[:, 0].tolist(), 0
    taken: list[int] = []
    for number, token in enumerate(ids):
        if close[number]:
            model.cache.length = start + number
            token, again = int(model.decode(row[:, number]).argmax(-1)), again + 1
        taken.append(token)
        if number == len(guess) or token != guess[number]:
            break
    return _Chosen(taken, len(taken) - 1, again)


def _until_end(token_ids: list[int], stop_ids: Collection[int]) -> list[int]:
    """The tokens up to the first that ends the sequence."""
    for number, token in enumerate(token_ids):
        if token in stop_ids:
            return token_ids[: number + 1]
    return token_ids
