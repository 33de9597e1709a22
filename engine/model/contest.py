"""Two ways of doing the same, timed in turn, and what was found, kept for this machine.

A file in the lab's home for each machine, version of torch, number of threads and state of the kernels; where it cannot
be read or written, it is measured again by each process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeVar

from pydantic import TypeAdapter

from engine import device as devices
from engine import kernels, settings
from engine.ceilings import Ceilings

SAMPLES = 3

Found = dict[str, list[int]]
"""By what was tried, the numbers of rows with which the kernels won."""
_FOUND = TypeAdapter(Found)
Part = TypeVar("Part")
Input = TypeVar("Input")


def fastest(ways: Sequence[Callable[[Part, Input], Any]], parts: Iterator[Part], x: Input) -> list[int]:
    """The shortest call of each way, in ns, taken in turn. The first call of each sets things up and does not count.

    parts: what each call works on, so that none finds in the caches what the one before it has read.
    """
    times: list[list[int]] = [[] for _ in ways]
    for _ in range(1 + SAMPLES):
        for way, taken in zip(ways, times, strict=True):
            part = next(parts)
            began = perf_counter_ns()
            way(part, x)
            taken.append(perf_counter_ns() - began)
    return [min(taken[1:]) for taken in times]


def known() -> Found:
    """What was found before; nothing where the file cannot be read or says something else."""
    with suppress(OSError, ValueError):
        return _FOUND.validate_json(_file().read_bytes(), strict=True)
    return {}


def keep(new: Found) -> None:
    """Add to the file. Another process may do the same: what it added is read again just before."""
    file = _file()
    unfinished = file.with_name(f"{file.stem}.{os.getpid()}.part")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(_FOUND.dump_json(known() | new))
        unfinished.replace(file)


def forget() -> None:
    """Let go of all that was kept."""
    if kernels.usable():
        with suppress(OSError):
            _file().unlink()


def _file() -> Path:
    # Not at the top: it needs numba, which may be missing.
    from engine.kernels.entry import sources

    told = (Ceilings.key(devices.facts("cpu")), sources())
    return settings.home() / "products" / f"{hashlib.sha256(repr(told).encode()).hexdigest()[:16]}.json"
