"""What a rerun of the experiments' pages costs the one process that serves everybody, a record on show."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from rerun_cost import RERUN_CPU_S, rerun_cpu_s
from web_server import Lab

from engine import catalogue, matrices, recorded
from engine.ceilings import Ceilings
from engine.shapes import ROWS, ShapeRecord, ShapeRequest
from engine.store import open_store


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

    spent = rerun_cpu_s(lab, page, query=lambda: "lang=en&" + query.format(next(values)), said=said)
    assert spent < RERUN_CPU_S, f"{spent * 1e3:.0f} ms"
