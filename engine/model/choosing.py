"""Which way a product of few rows goes, the compiled kernel's or torch's: measured once a machine, and remembered.

Measured when a model is loaded, never in a step nor from a run: both ways with 1 to 64 rows, in turn, on slices of the
model's own matrices, each slice read from where the last one was not. It takes some tens of milliseconds for a kind of
product, and is kept (`engine.model.contest`). Measuring the machine anew measures this anew as well: what was found on
a busy day need not stay.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import cycle
from time import monotonic

import torch
from torch import Tensor

from engine.model import contest
from engine.model.few_rows import TRIED_ROWS, Choice, forget_choices, slice_of
from engine.model.linear import Linear
from engine.model.packed import Packed

HOPELESS = 1.5
"""The kernel is not tried with more rows once it takes so many times torch's time; its share only shrinks."""
BUDGET_S = 0.8
"""Kinds of product that are left when so much time has passed go unmeasured."""


@torch.inference_mode()
def settle(linears: Iterable[Linear], dtype: torch.dtype) -> None:
    """Decide for every kind of product among these, with activations of `dtype`, that is not decided yet.

    The kernels they need are compiled on the way, if they were not.
    """
    alike: dict[Choice, list[Linear]] = defaultdict(list)
    for linear in linears:
        choice = None if linear.few is None else linear.few.choice(dtype)
        if choice is not None:
            alike[choice].append(linear)
    open_ = {choice: found for choice, found in alike.items() if not choice.decided}
    if open_:
        _settle(open_, dtype)


def _settle(alike: dict[Choice, list[Linear]], dtype: torch.dtype) -> None:
    known, new, spent = contest.known(), contest.Found(), 0.0
    for choice, linears in alike.items():
        _compile(linears[0], dtype)
        won = known.get(choice.key)
        if won is None:
            if spent > BUDGET_S:
                continue
            began = monotonic()
            won = new[choice.key] = _measured(linears, dtype)
            spent += monotonic() - began
        choice.decide(won)
    if new:
        contest.keep(new)


def _compile(linear: Linear, dtype: torch.dtype) -> None:
    assert linear.few is not None
    linear.few(torch.zeros(1, linear.shape[1], dtype=dtype))


def _measured(linears: list[Linear], dtype: torch.dtype) -> list[int]:
    """The numbers of rows with which the kernel is the faster way."""
    won, slices = [], _slices(linears)
    rows_of = torch.randn(TRIED_ROWS[-1], linears[0].shape[1]).to(dtype)
    for rows in TRIED_ROWS:
        x = rows_of[:rows]
        slower = contest.kernels_lose([_by_kernel, Linear.by_torch], slices, x)
        if not slower:
            won.append(rows)
        elif slower > HOPELESS and rows > 1:
            break
    return won


def _by_kernel(linear: Linear, x: Tensor) -> Tensor:
    assert linear.few is not None
    return linear.few(x)


def _slices(linears: list[Linear]) -> Iterator[Linear]:
    """Slices of these matrices, all of one shape, one behind the other and again from the first."""
    for linear in cycle(linears):
        size = slice_of(*linear.shape, packed=linear.packed is not None)
        for first in range(0, linear.shape[0] - size + 1, size):
            yield part_of(linear, slice(first, first + size))


def part_of(linear: Linear, rows: slice) -> Linear:
    """Those of the outputs."""
    bias, packed = None if linear.bias is None else linear.bias[rows], linear.packed
    if packed is None:
        return Linear.of(linear.weight[rows], bias)
    shape = (rows.stop - rows.start, packed.shape[1])
    return Linear.of(Packed(packed.stored[rows], packed.scales[rows], packed.group, shape), bias)


def forget() -> None:
    """Let everything be measured again, for the models that are loaded from now on."""
    forget_choices()
    contest.forget()
