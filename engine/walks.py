"""Walking dry steps in turn and keeping what each op took: which steps and how, for a model of any kind.

A slow moment of the machine falls on all cases alike. A sample is an op's mean over one walk, because a step pays
for every layer's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Protocol

import torch

from engine import device as devices
from engine.control import Control
from engine.dry_step import Case
from engine.laps import Laps, OpKey, laps_for
from engine.measure import ShouldStop, Stopped
from engine.spec import Spec

CONTEXTS = (16, 128, 512, 2048)
BATCHES = (2, 4, 8, 16, 32)
BATCH_CONTEXTS = (128, 1024)

# A walk that would take longer passes fewer layers; the next one goes on where it stopped, so that all take turns
# and no weight is met again before all the others were read.
WALK_S = 0.1
# Caches of all cases together; a case whose cache would not fit in what is left is not measured. Of the demo model in
# fp32 this has room for 16 sequences of 1024 positions; with half of it the cache of 8 was expected from that of 4.
CACHE_BYTES = 2**31

MOST_ROUNDS = 9
# Cases for each sample of the control readings: a sixth of the time.
CONTROL_EVERY = 9
DECODE_WALKS = 3
SETTLING_S, COUNTED_S = 0.01, 0.03
# On a busy machine the first round may take this many budgets before it leaves cases out; the plain decode steps
# at the head of the list are walked in any case.
FIRST_ROUND_BUDGETS = 2.0


def cases(
    spec: Spec, rows: Iterable[int], *, kv_bytes_per_position: int, cache_bytes: int, state_bytes: int = 0
) -> list[Case]:
    """The steps to walk: decode at each context, decode at each batch, prefill at each length; those that fit.

    state_bytes: what one sequence takes beside its positions.
    """
    # A context beyond the model's last position stands for the last.
    wanted = [Case(1, 1, min(context, spec.max_position)) for context in CONTEXTS]
    wanted += [Case(1, tokens, tokens) for tokens in sorted(set(rows)) if tokens > 1]
    wanted += [Case(batch, 1, context) for context in BATCH_CONTEXTS for batch in BATCHES]
    kept, left = [], cache_bytes
    for case in wanted:
        needed = case.batch * (case.context * kv_bytes_per_position + state_bytes)
        if case not in kept and case.context <= spec.max_position and needed <= left:
            kept.append(case)
            left -= needed
    return kept


def cache_room(device: torch.device) -> int:
    """Bytes for the caches of all cases together."""
    return min(CACHE_BYTES, devices.free_bytes(device) // 4)


class Dry(Protocol):
    """A model that can be walked op by op."""

    device: torch.device

    @property
    def weights(self) -> list[torch.Tensor]:
        """All that it holds to be read."""

    def cache_for(self, case: Case) -> tuple[Any, Any]:
        """The memory a case needs, of the model's own kind."""

    def step(self, case: Case, laps: Laps, cache: Any, rotary: Any, *, layers: int) -> Any:
        """One walk, with a lap after each op."""


class Walker:
    """Walks cases of one model in turn and keeps what each op took."""

    def __init__(self, model: Dry, wanted: Sequence[Case], layers: dict[Case, int]) -> None:
        self.samples: dict[OpKey, list[float]] = defaultdict(list)
        self._walked: set[Case] = set()
        self._model = model
        self._layers = layers
        self._laps = laps_for(model.device)
        self._memory = {case: model.cache_for(case) for case in wanted}

    def walk(self, case: Case) -> None:
        """Walks that do not count, so that what the change of shapes costs is not charged, and then those that do.

        A run makes the same step over and over: a short one needs many walks to find code, caches and branch
        predictors as a run does.
        """
        self._walked.add(case)
        began = monotonic()
        self._walk_once(case)
        while monotonic() - began < SETTLING_S:
            self._walk_once(case)
        began, fewest = monotonic(), DECODE_WALKS if case.tokens == 1 else 1
        while fewest > 0 or monotonic() - began < COUNTED_S:
            fewest -= 1
            for key, (time_ns, count) in self._walk_once(case).items():
                self.samples[key].append(time_ns / count)

    def has_walked(self, cases: Sequence[Case]) -> bool:
        """Whether each of these had its turn."""
        return self._walked.issuperset(cases)

    def _walk_once(self, case: Case) -> dict[OpKey, tuple[float, int]]:
        cache, rotary = self._memory[case]
        self._model.step(case, self._laps, cache, rotary, layers=self._layers[case])
        return self._laps.totals()


def walk_all(
    model: Dry,
    wanted: Sequence[Case],
    layers: dict[Case, int],
    *,
    budget_s: float,
    control: Control,
    on_share: Callable[[float], None],
    should_stop: ShouldStop,
) -> dict[OpKey, list[float]]:
    """Samples in nanoseconds by op: its mean over each walk. All cases take their turn until the time is spent.

    Args:
        control: reads the model's weights and multiplies, now and then, beside the walks.

    Raises:
        Stopped: `should_stop` said so; asked before every walk.
    """
    walker = Walker(model, wanted, layers)
    if model.device.type == "cpu":
        control.take(model.weights)
    plain = [case for case in wanted if case.rows == 1]
    started = monotonic()
    for done in range(MOST_ROUNDS):
        for place, case in enumerate(wanted):
            spent = (monotonic() - started) / budget_s
            if should_stop():
                raise Stopped
            if spent >= (1.0 if done else FIRST_ROUND_BUDGETS) and walker.has_walked(plain):
                return walker.samples
            walker.walk(case)
            if place % CONTROL_EVERY == 0:
                control.sample()
            in_rounds = (done + (place + 1) / len(wanted)) / MOST_ROUNDS
            on_share(min(0.99, max(in_rounds, spent)))
    return walker.samples
