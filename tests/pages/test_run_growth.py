"""*KV and state* lays what a run's tensors held over the prediction: KV grows, the state stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from made_up_run import finished_run
from reading import said, traces
from streamlit.testing.v1 import AppTest

from engine import broker, measured_points, random_shapes
from engine.ledger import Formats, resident
from engine.record import ModelFacts, ResidentBytes

Open = Callable[..., AppTest]
ANCHOR = "Qwen/Qwen3.8-27B"
PART = f"random:{ANCHOR}@layers=4"


@pytest.fixture
def hybrid_run(home: object) -> str:
    """A run of the anchor's first four layers: one caches 4,096 bytes a token, three keep 3,145,728 each."""
    config, model = random_shapes.read(PART)
    run = finished_run("hybridRun001")
    steps = []
    for step in run.steps:
        held = resident(model, max_tokens=step.context, formats=Formats.dense("bf16"))
        assert (held.kv_filled, held.state) == (4096 * step.context, 3 * 3_145_728)
        bytes_ = ResidentBytes(**{kind: int(amount) for kind, amount in held.as_dict().items()})
        steps.append(step.model_copy(update={"resident_bytes": bytes_}))
    facts = ModelFacts(
        id=PART, weights="random", weights_hash="0" * 64, dtype="bfloat16", weight_format="bf16", kv_format="bf16",
        parameters=1, config=config,
    )  # fmt: skip
    request = run.request.model_copy(update={"model": PART})
    broker.current().keep(run.model_copy(update={"steps": steps, "model": facts, "request": request}))
    return run.id


def test_a_part_of_the_anchor_lies_over_its_own_prediction(open_page: Open, hybrid_run: str) -> None:
    test = open_page("memory.py", lang="en", model=ANCHOR, runs=hybrid_run)
    assert not test.exception
    key = f"growth_{hybrid_run}"
    predicted, measured = traces(test, key, "kv")
    at = dict(zip(predicted["x"], predicted["y"], strict=True))
    assert measured["mode"] == "markers"
    assert measured["y"] == [4096 * context for context in measured["x"]]
    assert at[measured["x"][-1]] == measured["y"][-1]
    for kind, bytes_ in (("state", 3 * 3_145_728), ("conv", 3 * 3 * 10_240 * 2)):
        predicted, measured = traces(test, key, kind)
        assert set(predicted["y"]) == set(measured["y"]) == {bytes_}
    assert "the state stayed at" in said(test)


def test_runs_of_a_part_are_offered_with_their_model(open_page: Open, hybrid_run: str) -> None:
    test = open_page("memory.py", lang="en", model=ANCHOR)
    [box] = [box for box in test.multiselect if box.label == "Measured runs"]
    assert any("4 layers of it" in option for option in box.options)
    other = open_page("memory.py", lang="en", model="Qwen/Qwen3-0.6B")
    [box] = [box for box in other.multiselect if box.label == "Measured runs"]
    assert not any("layers of it" in option for option in box.options)


def test_a_dense_run_has_no_state_to_speak_of(open_page: Open, kept_run: str) -> None:
    test = open_page("memory.py", lang="en", model="smollm2-135m", runs=kept_run)
    assert not test.exception
    assert "the state stayed at" not in said(test)


def test_a_long_run_is_thinned_and_keeps_its_end() -> None:
    run = finished_run("hybridRun001")
    many = [run.steps[-1].model_copy(update={"index": n, "context": n + 4}) for n in range(1000)]
    thinned = measured_points.held(run.model_copy(update={"steps": many}), most=80)
    assert len(thinned) <= 80
    assert thinned[-1].context == 1003
    assert [each.context for each in thinned] == sorted(each.context for each in thinned)
