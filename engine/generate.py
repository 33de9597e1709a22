"""The two phases of generating text, timed: one prefill, then one decode step a token.

Each step times the forward pass and nothing else: ids are on the device before the clock starts, the
sampler has a clock of its own, and Python's garbage collector waits meanwhile. Knows token ids, not text.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from time import perf_counter_ns
from typing import Literal

import torch
from torch import Tensor

from engine.cache import CacheBytes
from engine.clock import Clock
from engine.errors import LabError
from engine.model import Model
from engine.model.phases import Reading
from engine.sampling import Sampler

StoppedBy = Literal["length", "end_of_sequence", "context_limit", "cancelled"]


@dataclass(frozen=True, slots=True)
class RawStep:
    """One forward pass as measured.

    tokens: rows processed, of one sequence. context: positions attended, the new ones included.
    token_ids: the token each sequence got from this step. time_ns, host_ns: as `engine.clock` says.
    ended: for each sequence, whether it has reached an end-of-sequence token, in this step or before.
        It keeps stepping with the others and repeats that token.
    held: what the caches held after it.
    stopped_by: in the last step, why it is the last; None before.
    """

    index: int
    phase: Literal["prefill", "decode"]
    tokens: int
    context: int
    token_ids: list[int]
    time_ns: int
    host_ns: int
    sample_ns: int
    ended: list[bool]
    held: CacheBytes
    stopped_by: StoppedBy | None = None


def generate(
    model: Model,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    clock: Clock,
    batch: int = 1,
    sampler: Sampler | None = None,
    stop_ids: Collection[int] = (),
    should_stop: Callable[[], bool] = lambda: False,
    reading: Reading = lambda tokens: None,
) -> Iterator[RawStep]:
    """Read the prompt, then write: yields one RawStep per forward pass, 1 prefill and up to N - 1 decodes for N tokens.

    The same prompt fills every row of the batch. `should_stop` is asked after every forward pass, so a cancel
    costs at most the step it falls into. The sampler (greedy where None) begins again from its seed. A long prompt's
    chunks are told to `reading`, which may end all by raising.

    Raises:
        LabError: an empty prompt, a prompt beyond the context or with unknown tokens, or a length or batch below 1.
            Raised by the call itself, before anything is run.
    """
    check(model, prompt_ids, max_new_tokens, batch)
    sampler = sampler or Sampler()
    return _steps(model, prompt_ids, max_new_tokens, clock, batch, sampler, stop_ids, should_stop, reading)


def warm_up(
    model: Model,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    clock: Clock,
    batch: int = 1,
    decode_steps: int = 3,
    should_stop: Callable[[], bool] = lambda: False,
    reading: Reading = lambda tokens: None,
) -> Iterator[RawStep]:
    """The first steps of the run to come, greedy: the same shapes, weights and cache, to be recorded apart.

    What happens once only (pages touched, kernels chosen, the cache allocated) then happens here.

    Raises:
        LabError: as `generate`.
    """
    check(model, prompt_ids, max_new_tokens, batch)
    steps = _steps(model, prompt_ids, max_new_tokens, clock, batch, Sampler(), (), should_stop, reading)
    return islice(steps, 1 + decode_steps)


def _steps(
    model: Model,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    clock: Clock,
    batch: int,
    sampler: Sampler,
    stop_ids: Collection[int],
    should_stop: Callable[[], bool],
    reading: Reading,
) -> Iterator[RawStep]:
    sampler.restart()
    positions = min(len(prompt_ids) + max_new_tokens - 1, model.max_tokens)
    prompt = torch.tensor([list(prompt_ids)] * batch, device=model.device)
    token_ids, ended = [0] * batch, [False] * batch
    for index in range(max_new_tokens):
        if index == 0:
            forward = partial(model.prefill, prompt, positions=positions, reading=reading)
        else:
            forward = partial(model.decode, torch.tensor(token_ids, device=model.device))
        logits, time_ns, host_ns = _timed(clock, forward)
        started = perf_counter_ns()
        sampled = sampler.sample(logits)
        sample_ns = perf_counter_ns() - started
        token_ids = [old if done else new for old, new, done in zip(token_ids, sampled, ended, strict=True)]
        ended = [done or token in stop_ids for done, token in zip(ended, token_ids, strict=True)]
        stopped_by: StoppedBy | None = None
        if all(ended):
            stopped_by = "end_of_sequence"
        elif index + 1 == max_new_tokens:
            stopped_by = "length"
        elif model.cache.length == model.max_tokens:
            stopped_by = "context_limit"
        elif should_stop():
            stopped_by = "cancelled"
        yield RawStep(
            index=index,
            phase="decode" if index else "prefill",
            tokens=1 if index else len(prompt_ids),
            context=model.cache.length,
            token_ids=token_ids,
            time_ns=time_ns,
            host_ns=host_ns,
            sample_ns=sample_ns,
            ended=ended,
            held=model.cache.bytes,
            stopped_by=stopped_by,
        )
        if stopped_by:
            return


def _timed(clock: Clock, forward: Callable[[], Tensor]) -> tuple[Tensor, int, int]:
    with garbage_collector_waiting():
        return clock.time(forward)


@contextmanager
def garbage_collector_waiting() -> Iterator[None]:
    """A collection may take tens of milliseconds and starts at any allocation; it may run between steps, not in one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check(model: Model, prompt_ids: Sequence[int], max_new_tokens: int, batch: int) -> None:
    """Let pass what can be generated.

    Raises:
        LabError: as `generate`.
    """
    if not prompt_ids:
        raise LabError("The prompt is empty; it has to have at least one token.")
    if len(prompt_ids) > model.max_tokens:
        raise LabError(
            "The prompt has {tokens} tokens; this context takes at most {limit}.",
            tokens=len(prompt_ids),
            limit=model.max_tokens,
        )
    if not 0 <= min(prompt_ids) <= max(prompt_ids) < model.spec.vocab_size:
        raise LabError(
            "The prompt has a token id outside the model's vocabulary of {size} tokens.", size=model.spec.vocab_size
        )
    if max_new_tokens < 1:
        raise LabError("{count} new tokens were asked for; at least 1 is needed.", count=max_new_tokens)
    if batch < 1:
        raise LabError("The batch is {count}; it has to be at least 1.", count=batch)
