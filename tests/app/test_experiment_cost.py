"""What a rerun of the experiments' pages costs the one process that serves everybody, a record on show."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from raw_client import RawClient, text_of
from web_server import Lab

from engine import catalogue, matrices, recorded
from engine.ceilings import Ceilings
from engine.shapes import ROWS, ShapeRecord, ShapeRequest
from engine.store import open_store

RERUN_CPU_S = 0.060
RERUNS = 20


def keep_shape(home: Path) -> str:
    """A measured matrix in the lab's store, on the ceilings of a run that ships."""
    ceilings: Ceilings | None = next(iter(recorded.runs().values())).ceilings
    assert ceilings is not None
    matrix = matrices.named(catalogue.load("Qwen/Qwen3.8-27B"), "mlp.up_proj")
    points = matrices.predict(matrix, "fp32", ROWS, ceilings)
    for point in points:
        point.time_ns = point.predicted_ns.measured_roof * 1.3
    record = ShapeRecord.model_validate(
        {"schema": 1, "id": "costCost0001", "state": "done", "created_at": "2026-01-02T03:04:05+00:00",
         "package_version": "0", "device": ceilings.device, "ceilings": ceilings, "k": matrix.k, "n": matrix.n,
         "request": ShapeRequest(weights="fp32"), "dtype": "fp32", "weight_bytes": matrix.bytes_in("fp32"),
         "points": points}
    )  # fmt: skip
    open_store(f"sqlite:///{home / 'lab.db'}").put_experiment(record)
    return record.id


@pytest.mark.parametrize(
    ("page", "said", "query"),
    [
        ("shapes", "One weight matrix", "shape=costCost0001&drawn={}"),
        ("sweeps", "own steps", "axis=batch&up_to={}"),
        ("levers", "three kinds of levers", "x={}"),
    ],
)
def test_a_rerun_of_an_experiments_page_costs_little_cpu(page: str, said: str, query: str, lab: Lab) -> None:
    keep_shape(lab.home)
    values = itertools.cycle((2, 4, 8, 16, 32))

    async def rerun(client: RawClient) -> str:
        client.query = "lang=en&" + query.format(next(values))
        return text_of(await client.rerun())

    async def cost() -> float:
        async with RawClient(lab.url, "lang=en", page) as client:
            assert said in await rerun(client)
            for _ in range(3):
                await rerun(client)
            before = lab.cpu_s()
            for _ in range(RERUNS):
                await rerun(client)
            return (lab.cpu_s() - before) / RERUNS

    spent = asyncio.run(cost())
    assert spent < RERUN_CPU_S, f"{spent * 1e3:.0f} ms"
