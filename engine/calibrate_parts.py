"""What the ops of a model with layers of any kind reach here: its distinct layers walked, a shelf at a time.

Bounded in memory (no shelf takes more than half of what is free, nor more than `HELD_BYTES`) and in time (the
shelves share the budget; prompts that would take a large part of it alone are left out, and expected from shorter
ones).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import torch

from engine import device as devices
from engine import ledger
from engine.ceilings import Ceilings
from engine.control import Control
from engine.dry_parts import DryParts, counted, shelves
from engine.dry_step import Case
from engine.laps import OpKey
from engine.measure import ShouldStop
from engine.model.latent import Form
from engine.spec import LatentAttention, Spec
from engine.walks import WALK_S, cache_room, cases, walk_all

HELD_BYTES = 2**32
LONGEST_WALK = 0.2  # of the budget
USUAL_PROMPT = 32


def walk_parts(
    ceilings: Ceilings,
    spec: Spec,
    dtype: str,
    device: torch.device,
    rows: Iterable[int],
    *,
    budget_s: float,
    control: Control,
    on_share: Callable[[float], None],
    should_stop: ShouldStop,
) -> dict[OpKey, list[float]]:
    """Samples in nanoseconds by op, from walks of every distinct layer.

    Raises:
        Stopped: `should_stop` said so.
    """
    torch_dtype = devices.DTYPES[dtype]
    held = shelves(spec, torch_dtype.itemsize, min(HELD_BYTES, devices.free_bytes(device) // 2))
    rounds = [(shelf, form) for shelf in held for form in _forms(shelf)]
    # Of a part, which may lie in a cache, reading says nothing of how the whole is read.
    beside = control if held == [spec] else Control()
    samples: dict[OpKey, list[float]] = defaultdict(list)
    for place, (shelf, form) in enumerate(rounds):
        model = DryParts(shelf, torch_dtype, device, head=place == 0, form=form)
        wanted = _cases(shelf, ceilings, dtype, device, rows, budget_s / len(rounds))
        if form == "re-expanded":  # which only a step of one token can be
            wanted = [case for case in wanted if case.tokens == 1]
        layers = {case: _instances(case, ceilings, shelf, dtype) for case in wanted}
        found = walk_all(
            model,
            wanted,
            layers,
            budget_s=budget_s / len(rounds),
            control=beside,
            on_share=partial(_on_part, on_share, place, len(rounds)),
            should_stop=should_stop,
        )
        for key, values in found.items():
            samples[key] += values
        del model
    return samples


def _on_part(on_share: Callable[[float], None], done: int, parts: int, share: float) -> None:
    on_share((done + share) / parts)


def _forms(spec: Spec) -> list[Form]:
    latent = any(isinstance(layer.mixer, LatentAttention) for layer in spec.layers)
    return ["absorbed", "re-expanded"] if latent else ["absorbed"]


def _cases(
    spec: Spec, ceilings: Ceilings, dtype: str, device: torch.device, rows: Iterable[int], budget_s: float
) -> list[Case]:
    """Those that fit into memory, and the prompts among them that fit into the time."""
    formats = ledger.Formats.dense(dtype)
    one = ledger.resident(spec, max_tokens=1, formats=formats)
    wanted = cases(
        spec,
        rows,
        kv_bytes_per_position=one.kv_allocated,
        state_bytes=one.state + one.conv,
        cache_bytes=cache_room(device),
    )
    in_time = [
        case
        for case in wanted
        if case.tokens == 1 or roof_s(case, ceilings, _each_once(spec), dtype) < LONGEST_WALK * budget_s
    ]
    return sorted(in_time, key=_turn)


def _turn(case: Case) -> tuple[int, float]:
    """Single tokens, then prompts, then batches. Of prompts the middling lengths first: on a busy machine the time may
    end before all had their turn, and a length between two that were measured is expected better than one beyond.
    """
    kind = 0 if case.rows == 1 else 1 if case.tokens > 1 else 2
    return kind, abs(math.log2(case.tokens / USUAL_PROMPT)) if kind == 1 else 0.0


def _instances(case: Case, ceilings: Ceilings, spec: Spec, dtype: str) -> int:
    """As many instances of every distinct layer as the roof lets pass in `WALK_S`; at least one."""
    most = max(count for _, count in spec.groups)
    return max(1, min(most, int(WALK_S / roof_s(case, ceilings, _each_once(spec), dtype))))


def _each_once(spec: Spec) -> Spec:
    return replace(spec, layers=tuple(layer for layer, _ in spec.groups))


def roof_s(case: Case, ceilings: Ceilings, spec: Spec, dtype: str) -> float:
    """The least a case can take here: its bytes or its FLOPs, whichever takes longer."""
    step = counted(spec, case, dtype)
    read_s = step.bytes.total / ceilings.bandwidth_at(step.working_set_bytes)
    return float(max(read_s, step.flops / ceilings.peak_flops_per_s.get(dtype, 1e9)))
