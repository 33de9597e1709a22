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
from engine.model.few_rows import TRIED_ROWS

SAMPLES = 3
CLEARLY = 1.1
"""The kernels lose only by more than this: two ways that draw differ by as much from one time to the next."""

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


def kernels_lose(ways: Sequence[Callable[[Part, Input], Any]], parts: Iterator[Part], x: Input) -> float:
    """Of two ways, the kernels' and torch's, by how many times the first is slower; 0 where it is not, clearly.

    Asked again before it is said, for what is said is kept: a moment of other work may fall on one of the two.
    """
    ours_ns, torchs_ns = fastest(ways, parts, x)
    if ours_ns > CLEARLY * torchs_ns:
        again = fastest(ways, parts, x)
        ours_ns, torchs_ns = min(ours_ns, again[0]), min(torchs_ns, again[1])
    return ours_ns / torchs_ns if ours_ns > CLEARLY * torchs_ns else 0.0


def known() -> Found:
    """What was found before; nothing where the file cannot be read or says something else."""
    with suppress(OSError, ValueError):
        said = _FOUND.validate_json(_file().read_bytes(), strict=True)
        return {name: rows for name, rows in said.items() if set(rows) <= set(TRIED_ROWS)}
    return {}


def keep(new: Found) -> None:
    """Add to the file. Another process may do the same: what it added is read again just before."""
    file = _file()
    unfinished = file.with_name(f"{file.stem}.{os.getpid()}.part")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.write_bytes(_FOUND.dump_json(known() | new))
            unfinished.replace(file)
        finally:
            unfinished.unlink(missing_ok=True)


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
