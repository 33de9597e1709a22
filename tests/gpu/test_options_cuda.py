"""A whole run on a CUDA device in each way of starting steps and of waiting for them: the same tokens, and a record of
which way it was and what was prepared for it.
"""

from __future__ import annotations

import pytest
import torch

from engine.bench import Bench
from engine.calibrate import calibrate, for_model
from engine.catalogue import load
from engine.ceilings import Ceilings
from engine.protocol import RunJob
from engine.record import Run, RunRequest
from engine.run_job import RunInProgress
from engine.tell import Teller

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(scope="module")
def ceilings() -> Ceilings:
    found = calibrate("cuda", torch.get_num_threads(), largest_bytes=2**28, gemm_sizes=(1024,), rounds=3)
    return for_model(found, load("tiny-3.7m"), "fp32", rows=[1, 16], budget_s=2.0)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench()


def run(bench: Bench, ceilings: Ceilings, **changes: str) -> Run:
    request = RunRequest(
        model="tiny-3.7m", prompt="Once upon a time", max_new_tokens=12, device="cuda", dtype="float32"
    )
    job = RunJob(
        id="cudacudacuda", created_at="2026-01-02", request=request.model_copy(update=changes), ceilings=ceilings
    )
    return RunInProgress(job, bench, Teller(job.id, lambda line: None, lambda: False)).measure()


@pytest.mark.parametrize("clock", ["synchronised", "free-running"])
@pytest.mark.parametrize("launches", ["eager", "graph"])
def test_each_way_writes_the_same_and_is_recorded(clock: str, launches: str, bench: Bench, ceilings: Ceilings) -> None:
    plain = run(bench, ceilings)
    other = run(bench, ceilings, clock=clock, launches=launches)
    assert other.output.token_ids == plain.output.token_ids
    assert (other.request.clock, other.request.launches) == (clock, launches)
    assert len(other.steps) == len(plain.steps)
    assert all(step.time_ns > 0 for step in other.steps)
    assert other.preparation is not None
    assert (other.preparation.capture_ns > 0) == (launches == "graph")
