"""A greedy run that never waits for its device: each token goes from one step to the next without leaving it.

`engine.generate` looks at every token before it starts the next step, as one who streams text has to; what the device
does not compute meanwhile is in the time per token. Here the host only queues, and the steps' times are what lies
between marks in the device's own queue. On a CPU the two are the same but for the sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from time import perf_counter_ns

import torch
from torch import Tensor

from engine.cache import CacheBytes
from engine.clock import marks_for
from engine.errors import LabError
from engine.generate import RawStep, StoppedBy, check, garbage_collector_waiting
from engine.model import Model
from engine.model.phases import Reading
from engine.spec import Experts


def check_runs_freely(model: Model) -> None:
    """Let pass a model whose steps ask the host for nothing.

    Raises:
        LabError: which experts a step reads is looked up on the host, which then waits for the device.
    """
    if any(isinstance(layer.feed_forward, Experts) for layer in model.spec.layers):
        raise LabError("A model with experts cannot run freely: after each layer the host asks which were chosen.")


@torch.inference_mode()
def free_run(
    model: Model,
    prompt_ids: Sequence[int],
    *,
    max_new_tokens: int,
    batch: int = 1,
    stop_ids: Collection[int] = (),
    should_stop: Callable[[], bool] = lambda: False,
    reading: Reading = lambda tokens: None,
) -> list[RawStep]:
    """Read the prompt, then write `max_new_tokens` tokens, the likeliest each time: the steps of `generate`, greedy.

    The choice of a token is in its step's `time_ns`; `host_ns` is what queueing the step took. The end of a text is
    seen when all has been computed, and what was written behind it is left out. Arguments are as of `generate`.

    Raises:
        LabError: as `generate`; or the device has no marks, or the model has experts.
    """
    check(model, prompt_ids, max_new_tokens, batch)
    check_runs_freely(model)
    marks = marks_for(model.device)
    count = min(max_new_tokens, model.max_tokens - len(prompt_ids) + 1)
    prompt = torch.tensor([list(prompt_ids)] * batch, device=model.device)
    tokens: list[Tensor] = []
    queued_at = [perf_counter_ns()]
    with garbage_collector_waiting():
        marks.mark()
        while len(tokens) < count and not (tokens and should_stop()):
            if tokens:
                logits = model.decode(tokens[-1])
            else:
                logits = model.prefill(prompt, positions=len(prompt_ids) + count - 1, reading=reading)
            tokens.append(logits.argmax(-1))
            marks.mark()
            queued_at.append(perf_counter_ns())
        time_ns = marks.gaps_ns()
    host_ns = [later - earlier for earlier, later in pairwise(queued_at)]
    steps = _steps(model, len(prompt_ids), torch.stack(tokens).tolist(), time_ns, host_ns, stop_ids)
    stopped_by: StoppedBy = "length" if count == max_new_tokens else "context_limit"
    if all(steps[-1].ended):
        stopped_by = "end_of_sequence"
    elif len(tokens) < count:
        stopped_by = "cancelled"
    return [*steps[:-1], replace(steps[-1], stopped_by=stopped_by)]


def _steps(
    model: Model,
    prompt_tokens: int,
    written: list[list[int]],
    time_ns: list[int],
    host_ns: list[int],
    stop_ids: Collection[int],
) -> list[RawStep]:
    """What was written, as steps, up to the one in which every sequence has ended."""
    steps: list[RawStep] = []
    ended = [False] * len(written[0])
    for index, chosen in enumerate(written):
        before = steps[-1].token_ids if steps else chosen
        token_ids = [old if done else new for old, new, done in zip(before, chosen, ended, strict=True)]
        ended = [done or token in stop_ids for done, token in zip(ended, token_ids, strict=True)]
        steps.append(
            RawStep(
                index=index,
                phase="decode" if index else "prefill",
                tokens=1 if index else prompt_tokens,
                context=prompt_tokens + index,
                token_ids=token_ids,
                time_ns=time_ns[index],
                host_ns=host_ns[index],
                sample_ns=0,
                ended=ended,
                held=_held(model, prompt_tokens + index),
            )
        )
        if all(ended):
            break
    return steps


def _held(model: Model, length: int) -> CacheBytes:
    """What the caches hold when so many positions are filled."""
    now, model.cache.length = model.cache.length, length
    held = model.cache.bytes
    model.cache.length = now
    return held
