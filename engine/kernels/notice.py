"""Who is told that kernels are compiled, and how long that took: ten to twenty seconds, once a format and machine.

They are compiled where they are first needed, deep inside a load or a measurement, which knows nothing of those who
wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter_ns
from typing import Protocol

BETWEEN_S = 0.2


class Listener(Protocol):
    """Someone who waits."""

    def compiling(self, format_: str) -> None:
        """The kernels for weights in a format are being compiled; called again and again. What this raises ends the
        waiting for them, and not the compiling.
        """

    def compiled(self, time_ns: int) -> None:
        """That took so long."""


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Whatever this thread has compiled meanwhile is told to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def waited_for(made: Future[int], format_: str) -> int:
    """What compiling made, once it is there."""
    listener = _listener.get()
    if listener is None:
        return made.result()
    started = perf_counter_ns()
    while True:
        listener.compiling(format_)
        try:
            found = made.result(BETWEEN_S)
        except TimeoutError:
            if made.done():  # it is what compiling raised
                raise
            continue
        listener.compiled(perf_counter_ns() - started)
        return found
