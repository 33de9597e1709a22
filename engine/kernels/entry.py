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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
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


_thread = ThreadPoolExecutor(1, thread_name_prefix="kernels")
"""Compiles and loads, one function after the other: whoever waits for one can be told, and can stop waiting."""

_addresses: dict[Callable[[int], None], Future[int]] = {}
_kept: list[Any] = []


def step_address(kind: str) -> int:
    """The address of the step's function for weights held as "fp32", "bf16", "int8" or "int4"."""
    return _once(_STEPS[kind], kind)


def reading_address() -> int:
    """The address of the function that `engine.kernels.reader` calls."""
    return _once(_reading, "fp32")


def counter_address() -> int:
    """The address of a function that adds one to the number at an address: how many threads have called it."""
    return _once(_count, None)


def bring(wanted: Callable[[], bool] = lambda: True) -> None:
    """Load the steps that an earlier process has compiled, as long as they are `wanted`; compile nothing."""
    folder = _cache_folder()
    for kind, function in _STEPS.items():
        if wanted() and _is_kept(function, folder):
            step_address(kind)


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
