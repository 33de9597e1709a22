"""The step as a C function for each format of weights and cache: what threads of any kind can call, with one address.

Compiled at first use (some seconds) and kept on disk beside this file, or in the lab's home where that cannot be
written, so that a later process loads it in a fraction of a second. numba asks only whether the function's own file
has changed, not those it calls: the folder is therefore named after the contents of all of this package.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray, cfunc, config, types

from engine import settings
from engine.kernels.atoms import fetch_add, pointer
from engine.kernels.notice import waited_for
from engine.kernels.reading import run_reading
from engine.kernels.step import run_step

_SIGNATURE = types.void(types.int64)
_TYPES: dict[str, type] = {"fp32": np.float32, "bf16": np.uint16, "int8": np.int8, "int4": np.uint8}


@cache
def _step(weights: str, kv: str) -> Callable[[int], None]:
    """The step for weights and for a cache in these formats, each of which an empty array stands for."""
    stored, kept = _TYPES[weights], _TYPES[kv]

    def step(address: int) -> None:
        run_step(carray(pointer(address), (0,), stored), carray(pointer(address), (0,), kept), address)

    step.__qualname__ = f"step_of_{weights}_with_{kv}"  # numba names the files it keeps after it
    return step


def _reading(address: int) -> None:
    run_reading(carray(pointer(address), (0,), np.float32), address)


def _count(address: int) -> None:
    fetch_add(address, 1)


_thread = ThreadPoolExecutor(1, thread_name_prefix="kernels")
"""Compiles and loads, one function after the other: whoever waits for one can be told, and can stop waiting."""

_addresses: dict[Callable[[int], None], Future[int]] = {}
_kept: list[Any] = []


def step_address(weights: str, kv: str = "fp32") -> int:
    """The step's function, by its address: weights in "fp32", "bf16", "int8" or "int4", a cache in all but the last."""
    return _once(_step(weights, kv), weights)


def reading_address() -> int:
    """The address of the function that `engine.kernels.reader` calls."""
    return _once(_reading, "fp32")


def counter_address() -> int:
    """The address of a function that adds one to the number at an address: how many threads have called it."""
    return _once(_count, None)


def bring(wanted: Callable[[], bool] = lambda: True) -> None:
    """Load the steps that an earlier process has compiled, as long as they are `wanted`; compile nothing."""
    folder = _cache_folder()
    for weights, kv in product(_TYPES, ("fp32", "bf16", "int8")):
        if wanted() and _is_kept(_step(weights, kv), folder):
            step_address(weights, kv)


def compiled(function: Callable[[int], None], format_: str | None = None) -> int:
    """The address of a function of one address, compiled for threads of any kind, now or by an earlier process.

    format_: the weights that it computes with, if compiling it takes so long that whoever waits should be told
        (`engine.kernels.notice`).
    """
    return _waited_for(_thread.submit(_compiled, function), function, format_)


def _once(function: Callable[[int], None], format_: str | None) -> int:
    """As `compiled`, but compiled or loaded by this process once; again only where that failed."""
    made = _addresses.get(function)
    if made is None or (made.done() and made.exception() is not None):
        made = _addresses[function] = _thread.submit(_compiled, function)
    return _waited_for(made, function, format_)


def _waited_for(made: Future[int], function: Callable[[int], None], format_: str | None) -> int:
    quick = format_ is None or made.done() or _is_kept(function, _cache_folder())
    return made.result() if quick else waited_for(made, str(format_))


def _compiled(function: Callable[[int], None]) -> int:
    folder = _cache_folder()
    try:
        made = _made(function, folder)
    except Exception:
        # A damaged file, a full disk: numba lets through whatever reading or writing raises. What was kept goes, so
        # that the next process compiles and keeps it anew; this one does without.
        if folder is None:
            raise
        shutil.rmtree(folder, ignore_errors=True)
        made = _made(function, None)
    _kept.append(made)  # the code lives as long as this does
    return int(made.address)


def _is_kept(function: Callable[[int], None], folder: Path | None) -> bool:
    """Whether an earlier process has left it: numba names its index after the file, the function and its line."""
    name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}-*.nbi"
    return folder is not None and any(folder.rglob(name))


def _made(function: Callable[[int], None], folder: Path | None) -> Any:
    """The C function, kept in `folder` where there is one."""
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder or "")
    try:
        return cfunc(_SIGNATURE, cache=folder is not None)(function)
    finally:
        config.CACHE_DIR = before


def _cache_folder() -> Path | None:
    """A folder that can be written; without one every process compiles for itself."""
    for place in (Path(__file__).parent / "__pycache__", settings.home() / "kernels"):
        folder = place / sources()
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def sources() -> str:
    """What this package is now, in 16 hex digits."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
