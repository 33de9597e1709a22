"""Compiled kernels for steps of few rows on a CPU, in each weight format: fp32, bf16, int8 and int4.

A dense decoder's whole step is one function; other families take their products from here (`engine.model.few_rows`).

Arithmetic is fp32, but int8 weights are multiplied by activations of 16 bits for up to eight rows (`whole`).

Made by numba, which is a wheel and needs no compiler. Where it is missing, or the system is not a POSIX one, the model
computes with plain torch; a record's device facts say which it was. Importing this package imports nothing heavy.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec

from engine import settings


def usable() -> bool:
    """Whether the kernels can be used here, and ROOFLINE_LAB_KERNELS does not ask for plain torch."""
    return settings.kernels() != "torch" and sys.platform != "win32" and _is_there()


@cache
def _is_there() -> bool:
    return find_spec("numba") is not None
