"""The step as a C function for each weight format: what threads of any kind can call, with one address.

Compiled at first use (some seconds) and kept on disk beside this file, or in the lab's home where that cannot be
written, so that a later process loads it in a fraction of a second. numba asks only whether the function's own file
has changed, not those it calls: the folder is therefore named after the contents of all of this package.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import carray, cfunc, config, types

from engine import settings
from engine.kernels.atoms import fetch_add, pointer
from engine.kernels.reading import run_reading
from engine.kernels.step import run_step

_SIGNATURE = types.void(types.int64)


def _fp32(address: int) -> None:
    run_step(carray(pointer(address), (0,), np.float32), address)


def _bf16(address: int) -> None:
    run_step(carray(pointer(address), (0,), np.uint16), address)


def _int8(address: int) -> None:
    run_step(carray(pointer(address), (0,), np.int8), address)


def _int4(address: int) -> None:
    run_step(carray(pointer(address), (0,), np.uint8), address)


def _reading(address: int) -> None:
    run_reading(carray(pointer(address), (0,), np.float32), address)


def _count(address: int) -> None:
    fetch_add(address, 1)


_STEPS = {"fp32": _fp32, "bf16": _bf16, "int8": _int8, "int4": _int4}


@cache
def step_address(kind: str) -> int:
    """The address of the step's function for weights held as "fp32", "bf16", "int8" or "int4"."""
    return compiled(_STEPS[kind])


@cache
def reading_address() -> int:
    """The address of the function that `engine.kernels.reader` calls."""
    return compiled(_reading)


@cache
def counter_address() -> int:
    """The address of a function that adds one to the number at an address: how many threads have called it."""
    return compiled(_count)


_kept: list[Any] = []


def compiled(function: Callable[[int], None]) -> int:
    """The address of a function of one address, compiled for threads of any kind, now or by an earlier process."""
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
        folder = place / _sources()
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    return None


def _sources() -> str:
    """What this package is now, in 16 hex digits."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
