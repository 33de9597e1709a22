"""Which way a product of few rows goes, the compiled kernel's or torch's: measured once a machine, and remembered.

Measured when a model is loaded, never in a step nor from a run: both ways with 1 to 64 rows, in turn, on slices of the
model's own matrices, each slice read from where the last one was not. It takes some tens of milliseconds for a kind of
product. What was found is kept in the lab's home, a file for each machine, version of torch, number of threads and
state of the kernels; where it cannot be read or written, it is measured again by each process. Measuring the machine
anew measures this anew as well: what was found on a busy day need not stay.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from time import monotonic, perf_counter_ns

import torch
from pydantic import TypeAdapter
from torch import Tensor

from engine import device as devices
from engine import kernels, settings
from engine.ceilings import Ceilings
from engine.model.few_rows import TRIED_ROWS, Choice, forget_choices, slice_of
from engine.model.linear import Linear
from engine.model.packed import Packed

SAMPLES = 3
HOPELESS = 1.5
"""The kernel is not tried with more rows once it takes so many times torch's time; its share only shrinks."""
BUDGET_S = 0.8
"""Kinds of product that are left when so much time has passed go unmeasured."""

Found = dict[str, list[int]]
"""By the kind of product, the numbers of rows with which the kernel won."""
_FOUND = TypeAdapter(Found)


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
        _settle(open_, dtype, _file())


def _settle(alike: dict[Choice, list[Linear]], dtype: torch.dtype, file: Path) -> None:
    known, new, spent = _read(file), Found(), 0.0
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
        _write(file, new)


def _compile(linear: Linear, dtype: torch.dtype) -> None:
    assert linear.few is not None
    linear.few(torch.zeros(1, linear.shape[1], dtype=dtype))


def _measured(linears: list[Linear], dtype: torch.dtype) -> list[int]:
    """The numbers of rows with which the kernel is the faster way."""
    won, slices = [], _slices(linears)
    rows_of = torch.randn(TRIED_ROWS[-1], linears[0].shape[1]).to(dtype)
    for rows in TRIED_ROWS:
        x = rows_of[:rows]
        kernels_ns, torchs_ns = _fastest([_by_kernel, Linear.by_torch], slices, x)
        if kernels_ns <= torchs_ns:
            won.append(rows)
        elif kernels_ns > HOPELESS * torchs_ns and rows > 1:
            break
    return won


def _by_kernel(linear: Linear, x: Tensor) -> Tensor:
    assert linear.few is not None
    return linear.few(x)


def _fastest(ways: list[Callable[[Linear, Tensor], Tensor]], slices: Iterator[Linear], x: Tensor) -> list[int]:
    """The shortest call of each way, in ns, taken in turn. The first call of each sets things up and does not count."""
    times: list[list[int]] = [[] for _ in ways]
    for _ in range(1 + SAMPLES):
        for way, taken in zip(ways, times, strict=True):
            linear = next(slices)
            began = perf_counter_ns()
            way(linear, x)
            taken.append(perf_counter_ns() - began)
    return [min(taken[1:]) for taken in times]


def _slices(linears: list[Linear]) -> Iterator[Linear]:
    """Slices of these matrices, all of one shape, one behind the other and again from the first."""
    for linear in cycle(linears):
        size = slice_of(*linear.shape, packed=linear.packed is not None)
        for first in range(0, linear.shape[0] - size + 1, size):
            yield _part(linear, slice(first, first + size))


def _part(linear: Linear, rows: slice) -> Linear:
    bias, packed = None if linear.bias is None else linear.bias[rows], linear.packed
    if packed is None:
        return Linear.of(linear.weight[rows], bias)
    shape = (rows.stop - rows.start, packed.shape[1])
    return Linear.of(Packed(packed.stored[rows], packed.scales[rows], packed.group, shape), bias)


def forget() -> None:
    """Let everything be measured again, for the models that are loaded from now on."""
    forget_choices()
    if kernels.usable():
        with suppress(OSError):
            _file().unlink()


# ---- what was found before -----------------------------------------------------------------------


def _file() -> Path:
    # Not at the top: it needs numba, which may be missing.
    from engine.kernels.entry import sources

    told = (Ceilings.key(devices.facts("cpu")), sources())
    return settings.home() / "products" / f"{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}.json"


def _read(file: Path) -> Found:
    """What the file says; nothing where it cannot be read or says something else."""
    with suppress(OSError, ValueError):
        return _FOUND.validate_json(file.read_bytes(), strict=True)
    return {}


def _write(file: Path, new: Found) -> None:
    """Add to the file. Another process may do the same: what it added is read again just before."""
    unfinished = file.with_name(f"{file.stem}.{os.getpid()}.part")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(_FOUND.dump_json(_read(file) | new))
        unfinished.replace(file)
