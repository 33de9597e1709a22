"""What a rerun costs the one process that serves everybody, in seconds of its processor's time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raw_client import RawClient, text_of
from web_server import Lab

RERUN_CPU_S = 0.060
FIRST = 3
"""Reruns that do not count: the first ones of a page import and compile."""


def rerun_cpu_s(lab: Lab, page: str, *, query: Callable[[], str], said: str = "", reruns: int = 20) -> float:
    """The mean over `reruns` reruns of a page, each with what `query` gives then.

    said: what the first of them has to show, so that it is the page and not an error that is timed.
    """

    async def cost() -> float:
        async with RawClient(lab.url, query(), page) as client:
            assert said in text_of(await client.rerun())
            for _ in range(FIRST):
                client.query = query()
                await client.rerun()
            before = lab.cpu_s()
            for _ in range(reruns):
                client.query = query()
                text_of(await client.rerun())
            return (lab.cpu_s() - before) / reruns

    return asyncio.run(cost())
