"""Where the lab keeps things and what it is allowed to use, all from the environment.

| variable | meaning | default |
|---|---|---|
| ROOFLINE_LAB_HOME | fetched models, the store, calibration | the platform's user cache |
| ROOFLINE_LAB_MODELS | the folder whose subfolders the web app offers as models | none |
| ROOFLINE_LAB_STORE | SQLAlchemy URL of the run store | SQLite in the home folder |
| ROOFLINE_LAB_THREADS | threads the engine computes with | the physical cores it may run on |
| ROOFLINE_LAB_KERNELS | `torch` to compute with plain torch alone | the compiled kernels, where they can be used |
| ROOFLINE_LAB_DEVICE | device of the lab's worker | cpu, or cuda / xpu / mps where torch finds one |
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import psutil

from engine.errors import LabError


def home() -> Path:
    """The lab's folder on this machine (not created here)."""
    configured = os.environ.get("ROOFLINE_LAB_HOME")
    return Path(configured).expanduser() if configured else platformdirs.user_cache_path("roofline-lab")


def models_folder() -> Path | None:
    """The folder whose subfolders a web visitor may choose as models, or None."""
    configured = os.environ.get("ROOFLINE_LAB_MODELS")
    return Path(configured).expanduser() if configured else None


def store_url() -> str:
    """SQLAlchemy URL of the store of runs and ceilings."""
    return os.environ.get("ROOFLINE_LAB_STORE") or f"sqlite:///{home() / 'lab.db'}"


def device() -> str | None:
    """The device asked for, or None to let the worker choose."""
    return os.environ.get("ROOFLINE_LAB_DEVICE") or None


def kernels() -> str | None:
    """Which kernels compute on a CPU: "torch" for plain torch alone, or None to use the compiled ones where possible.

    Raises:
        LabError: ROOFLINE_LAB_KERNELS is something else.
    """
    configured = os.environ.get("ROOFLINE_LAB_KERNELS") or None
    if configured not in (None, "torch"):
        raise LabError("ROOFLINE_LAB_KERNELS is {value}; it can be torch, or not set.", value=configured)
    return configured


MOST_THREADS_EACH = 4
"""Threads for each processor: beyond that they only wait for one another, and soon none can be started."""


def threads() -> int:
    """Threads for the engine: as configured, else the physical cores this process may run on.

    Raises:
        LabError: ROOFLINE_LAB_THREADS is not a whole number of at least 1, or is more than this machine has use for.
    """
    configured = os.environ.get("ROOFLINE_LAB_THREADS")
    if configured:
        most = MOST_THREADS_EACH * (os.cpu_count() or 1)
        if not configured.isdecimal() or not 1 <= int(configured[:20]) <= most:
            raise LabError(
                "ROOFLINE_LAB_THREADS is {value}; it has to be a whole number from 1 to {most}, {each} for each "
                "processor of this machine.",
                value=configured[:40],
                most=most,
                each=MOST_THREADS_EACH,
            )
        return int(configured)
    physical = psutil.cpu_count(logical=False) or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else physical
    return max(1, min(physical, allowed))


def check() -> None:
    """Let pass what the engine can compute with.

    Raises:
        LabError: as `threads` and `kernels`.
    """
    threads()
    kernels()
