"""The two phases on a CUDA device: the CPU's logits, the device's clock, a greedy run that repeats."""

from __future__ import annotations

import pytest
import torch

from engine.clock import clock_for
from engine.generate import generate
from engine.model import Model, load

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PROMPT = list(range(1, 66))


@pytest.fixture(scope="module")
def model() -> Model:
    return load("tiny-3.7m", device="cuda", max_tokens=128)


def test_logits_are_those_of_the_cpu(model: Model) -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    on_cpu = load("tiny-3.7m", max_tokens=128)
    ids = torch.tensor([PROMPT] * 3)
    pairs = [(on_cpu.prefill(ids), model.prefill(ids.cuda()))]
    pairs += [(on_cpu.decode(ids[:, t]), model.decode(ids[:, t].cuda())) for t in range(4)]
    for expected, got in pairs:
        assert (expected - got.cpu()).abs().max() / expected.abs().max() < 1e-4


def test_the_device_clock_sees_the_work_and_not_the_queue(model: Model) -> None:
    clock = clock_for(torch.device("cuda"))
    matrix = torch.randn(4096, 4096, device="cuda")
    clock.time(lambda: matrix @ matrix)
    _, device_ns, host_ns = clock.time(lambda: [matrix @ matrix for _ in range(20)])
    least_ns = 20 * 2 * 4096**3 / 2e15 * 1e9
    assert least_ns < device_ns <= host_ns * 1.05


def test_a_greedy_run_repeats_itself(model: Model) -> None:
    clock = clock_for(torch.device("cuda"))
    first, second = (list(generate(model, PROMPT, max_new_tokens=16, clock=clock)) for _ in range(2))
    assert [step.token_ids for step in first] == [step.token_ids for step in second]
    assert [step.phase for step in first] == ["prefill"] + ["decode"] * 15
    assert all(step.time_ns > 0 for step in first)
