"""A greedy run that never waits for its device: each token goes from one step to the next without leaving it.

`engine.generate` looks at every token before it starts the next step, as one who streams text has to; what the device
does not compute meanwhile is in the time per token. Here the host only queues, and the steps' times are what lies
between marks in the device's own queue. On a CPU the two are the same but for the sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from engine.clock import marks_for
from engine.model import Model


@dataclass(frozen=True, slots=True)
class FreeRun:
    """What was written by the first sequence, and the time of each decode step, the choice of its token included."""

    token_ids: list[int]
    step_ns: list[int]


@torch.inference_mode()
def free_run(model: Model, prompt_ids: Sequence[int], *, max_new_tokens: int, batch: int = 1) -> FreeRun:
    """Read the prompt, then write `max_new_tokens` tokens, the likeliest each time; the end of a text ends nothing.

    Raises:
        LabError: the prompt or the length does not fit the model, or its device has no marks.
    """
    marks = marks_for(model.device)
    prompt = torch.tensor([list(prompt_ids)] * batch, device=model.device)
    tokens = [model.prefill(prompt, positions=len(prompt_ids) + max_new_tokens - 1).argmax(-1)]
    marks.mark()
    for _ in range(max_new_tokens - 1):
        tokens.append(model.decode(tokens[-1]).argmax(-1))
        marks.mark()
    step_ns = marks.gaps_ns()
    return FreeRun([int(token) for token in torch.stack(tokens)[:, 0].tolist()], step_ns)
