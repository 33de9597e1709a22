"""A decode step replayed from a graph: the eager step's logits, from the first step on and after the next prompt."""

from __future__ import annotations

import pytest
import torch

from engine.free_run import free_run
from engine.model import load
from engine.model.decoder import Decoder, Launches
from engine.model.graph import what_compiling_lacks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
PROMPT = list(range(1, 40))


def skip_without_compiler(launches: Launches) -> None:
    if launches == "compiled" and what_compiling_lacks():
        pytest.skip(f"torch.compile needs {what_compiling_lacks()}")


@pytest.fixture(scope="module")
def model() -> Decoder:
    found = load("tiny-3.7m", device="cuda", max_tokens=64)
    assert isinstance(found, Decoder)
    return found


def logits(model: Decoder, ids: torch.Tensor) -> list[torch.Tensor]:
    return [model.prefill(ids, positions=64).cpu(), *(model.decode(ids[:, step]).cpu() for step in range(8))]


@pytest.mark.parametrize("launches", ["graph", "compiled"])
@pytest.mark.parametrize("batch", [1, 4])
def test_a_replayed_step_is_the_eager_step(model: Decoder, batch: int, launches: Launches) -> None:
    skip_without_compiler(launches)
    ids = torch.tensor([PROMPT[step:] + PROMPT[:step] for step in range(batch)], device="cuda")
    model.use_launches("eager")
    eager = logits(model, ids)
    model.use_launches(launches)
    for _ in range(2):  # recorded, and then replayed behind a new prompt in the same cache
        for expected, got in zip(eager, logits(model, ids), strict=True):
            assert (expected - got).abs().max() / expected.abs().max() < 1e-3
    assert model.graph is not None
    assert model.graph.capture_ns > 0
    assert (model.graph.compile_ns > 0) == (launches == "compiled")


def test_a_graph_writes_what_eager_steps_write(model: Decoder) -> None:
    model.use_launches("eager")
    eager = free_run(model, PROMPT, max_new_tokens=20)
    model.use_launches("graph")
    replayed = free_run(model, PROMPT, max_new_tokens=20)
    assert [step.token_ids for step in replayed] == [step.token_ids for step in eager]
