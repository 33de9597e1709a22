"""What the engine's process keeps between jobs: one model, and of the ceilings those that a model needs."""

from __future__ import annotations

import pytest
import torch
from pydantic import BaseModel
from records import ceilings

from engine import catalogue, checkpoint
from engine import device as devices
from engine.bench import Bench
from engine.calibrate_model import weight_bytes
from engine.ceilings import LinearPoint
from engine.errors import Sentence
from engine.measure import Stopped
from engine.protocol import Advanced
from engine.source import Source
from engine.tell import Teller

MODEL = "tiny-3.7m"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def source() -> Source:
    return checkpoint.resolve(MODEL, allow_paths=False)


def teller(said: list[BaseModel], *, cancelled: bool = False) -> Teller:
    return Teller("job", said.append, lambda: cancelled)


def test_one_model_is_kept_and_its_memory_is_counted(source: Source) -> None:
    bench = Bench()
    assert bench.held_bytes(source, CPU, "float32") == 0
    model = bench.model(source, CPU, "float32")
    assert bench.model(source, CPU, "float32") is model
    assert bench.held_bytes(source, CPU, "float32") == model.resident_weight_bytes
    model.prefill(torch.ones(3, 5, dtype=torch.long), positions=9)
    # fp32 keys and values of 3 sequences of 9 positions: the next run of this model gets this memory back first.
    spec = source.spec
    mixer = spec.layers[0].mixer
    kv_bytes = 3 * 9 * spec.num_layers * 2 * mixer.kv_heads * mixer.head_dim * 4  # type: ignore[union-attr]
    assert bench.held_bytes(source, CPU, "float32") == model.resident_weight_bytes + kv_bytes
    assert bench.held_bytes(source, CPU, "bfloat16") == 0
    assert bench.model(source, CPU, "bfloat16") is not model
    assert bench.held_bytes(source, CPU, "float32") == 0
    bench.clear()
    assert bench.held_bytes(source, CPU, "bfloat16") == 0


def test_known_ceilings_are_used_and_cut_to_the_model(source: Source) -> None:
    here = devices.facts(CPU)
    own, other = (
        LinearPoint(k=8, n=8, dtype="fp32", rows=1, time_ns=100, spread=0, working_set_bytes=size)
        for size in (weight_bytes(source.spec, "fp32"), weight_bytes(catalogue.load("smollm2-135m"), "fp32"))
    )
    known, said = ceilings(device=here, linear=[own, other]), list[BaseModel]()
    used = Bench().ceilings(CPU, source.spec, "fp32", known, teller(said))
    assert used.linear == [own]
    assert used.id == known.id
    assert said == []  # nothing was measured, so there is nothing to keep


@pytest.mark.parametrize("changed", ["threads", "torch_version", "name"])
def test_ceilings_of_another_machine_or_software_are_not_used(source: Source, changed: str) -> None:
    """They would have to be measured anew, which this test calls off at once."""
    here = devices.facts(CPU)
    facts = here.model_copy(update={changed: here.threads + 1 if changed == "threads" else "another"})
    point = LinearPoint(
        k=8, n=8, dtype="fp32", rows=1, time_ns=100, spread=0, working_set_bytes=weight_bytes(source.spec, "fp32")
    )
    known = ceilings(device=facts, linear=[point])
    with pytest.raises(Stopped):
        Bench().ceilings(CPU, source.spec, "fp32", known, teller([], cancelled=True))


def test_progress_is_thinned_but_no_new_sentence_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("engine.tell.monotonic", lambda: clock[0])
    said: list[BaseModel] = []
    tell = teller(said).progress("fetching")
    for tenth in range(20):
        clock[0] += 0.03
        tell(Sentence(template="one"), tenth / 20)
    tell(Sentence(template="two"), 0.0)
    told = [each for each in said if isinstance(each, Advanced) and each.progress]
    assert 4 <= len(told) <= 7
    assert str(told[-1].progress.sentence) == "two"  # type: ignore[union-attr]
