"""Step by step, the map, the words: what they show of a run and of the lesson, in both languages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reading import said
from streamlit.testing.v1 import AppTest
from test_path import data_of

from engine import broker, lesson, recorded
from engine.lesson_formulas import formulas
from engine.predict import DeviceLike
from engine.record import Run
from pages._lesson import small_model
from pages._lesson.accelerations import MAP
from pages._lesson.glossary import TERMS

Open = Callable[..., AppTest]


def test_a_run_is_replayed_from_its_record(open_page: Open, kept_run: str) -> None:
    data = data_of(open_page("steps.py", lang="en", run=kept_run, at="3"), "replay")
    record = broker.current().record(kept_run)
    assert data["at"] == 2
    columns = data["columns"]
    assert columns["phase"] == ["prefill", "decode", "decode", "decode"]
    assert columns["rows"] == [4, 1, 1, 1]
    assert columns["time_ns"] == [step.time_ns for step in record.steps]
    assert columns["expected_ns"] == [step.predicted_ns.expected for step in record.steps]
    assert [read for read, _ in columns["kv"]] == [step.bytes.kv_read for step in record.steps]
    assert [box["id"] for box in data["boxes"]] == [
        "tokenize",
        "prefill",
        "weights",
        "cache",
        "logits",
        "pick",
        "append",
    ]


@pytest.mark.parametrize("at", ["0", "-1", "9" * 30, "x", "", "٣"])
def test_a_step_that_is_not_there_is_the_nearest_that_is(at: str, open_page: Open, kept_run: str) -> None:
    test = open_page("steps.py", lang="en", run=kept_run, at=at)
    assert not test.exception
    assert 0 <= data_of(test, "replay")["at"] < 4


def test_a_run_that_is_not_there_is_one_clear_sentence(open_page: Open) -> None:
    test = open_page("steps.py", lang="en", run="AAAAAAAAAAAA")
    assert [error.value for error in test.error] == ["There is no run AAAAAAAAAAAA here"] or "There is no run" in said(
        test
    )
    assert not test.exception


def test_the_pen_and_paper_task_counts_as_the_text_and_as_the_engine(open_page: Open) -> None:
    data = data_of(open_page("steps.py", lang="en"), "paper")
    assert (data["prompt"], data["output"]) == (10, 5)
    assert data["passes"] == {"text": 6, "engine": 5}


def test_the_map_has_a_number_for_each_step(open_page: Open) -> None:
    shown = said(open_page("map.py", lang="en"))
    assert all(name in shown for name in ("503,500", "51.25 GB", "2,304", "44 %", "17.2 GB", "3.4 times"))
    assert len(MAP) == 11


def small_run(run_id: str, *, compiled: bool, faster: float) -> Run:
    """The recorded run of the small model as this machine might have made it, its own kernels compiled or not."""
    [kept] = [run for run in recorded.runs().values() if run.request.model == small_model.SMALL]
    assert kept.device is not None
    kernels = {**kept.device.kernels, **({"decode": "numba"} if compiled else {})}
    steps = [step.model_copy(update={"time_ns": round(step.time_ns / faster)}) for step in kept.steps]
    return kept.model_copy(
        update={"id": run_id, "steps": steps, "device": kept.device.model_copy(update={"kernels": kernels})}
    )


def test_the_small_model_stands_as_recorded_beside_as_it_runs_here(open_page: Open) -> None:
    shown = said(open_page("map.py", lang="en"))
    assert "its bytes need only 428 µs" in shown
    assert "its token stands beside the recorded one" in shown
    broker.current().keep(small_run("smallRun0001", compiled=True, faster=4))
    shown = said(open_page("map.py", lang="en"))
    # 1.79 ms become 0.45 ms, of which 0.43 ms are bytes.
    assert "shrinks from 1.36 ms to 19.6 µs" in shown
    assert "| here | one compiled function | 448 µs | 428 µs |" in shown


def test_a_machine_without_compiled_kernels_says_so(open_page: Open) -> None:
    broker.current().keep(small_run("smallRun0002", compiled=False, faster=1.1))
    assert "runs without compiled kernels" in said(open_page("map.py", lang="en"))


def test_the_words_can_be_searched(open_page: Open) -> None:
    test = open_page("glossary.py", lang="en")
    assert said(test).count("\n- ") + 1 >= len(TERMS)
    test.text_input(key="glossary_find").set_value("ridge").run()
    assert 0 < said(test).count("- **") < 10
    test.text_input(key="glossary_find").set_value("no such word").run()
    assert not test.exception
    assert "No term of the lab" in said(test)


def test_devices_shows_what_many_believe_with_computed_numbers(open_page: Open) -> None:
    test = open_page(step="misconceptions", lang="en")
    shown = said(test)
    assert f"× {lesson.figure('speed_a100_h100'):.2f}" in shown
    assert "320 for decode" not in shown  # folded away, and not computed
    test.button(key="belief_0").click().run()
    cards = (test.selectbox(key="scene_before").value, test.selectbox(key="scene_device").value)
    assert cards == ("h100-sxm", "h200-sxm")


def test_devices_says_why_a_mixture_is_served_on_machines_apart(open_page: Open) -> None:
    test = open_page("devices.py", lang="en")
    assert "speed_a100" not in said(test)
    test.session_state["phases_apart"] = True
    test.run()
    assert not test.exception
    assert "32 GPUs as the smallest unit for prefill and 320 for decode" in said(test)
    assert "need 295 rows" in said(test)


@pytest.mark.parametrize("preset", ["lesson", "engine"])
@pytest.mark.parametrize(
    ("model", "batch"), [("Qwen/Qwen3.8-27B", 7), ("deepseek-ai/DeepSeek-V3", 1), ("smollm2-135m", 3)]
)
def test_a_formula_filled_with_its_terms_gives_its_result(preset: str, model: str, batch: int) -> None:
    from engine import catalogue, hardware
    from engine.ledger import Formats
    from engine.ledger.convention import named

    spec = catalogue.load(model)
    device: DeviceLike = hardware.load("h200-sxm")
    found = {
        each.id: each
        for each in formulas(spec, device, formats=Formats.own(spec), convention=named(preset), preset=preset,
                             prompt=4, context=300, batch=batch)
    }  # fmt: skip

    def terms(name: str) -> dict[str, float]:
        return {letter: value.number for letter, value in found[name].terms.items()}

    step, own, most = terms("step_time"), terms("step_bytes"), terms("largest_batch")
    assert found["step_time"].result.number == pytest.approx(max(step["FLOPs"] / step["π"], step["bytes"] / step["β"]))
    assert found["intensity"].result.number == pytest.approx(step["FLOPs"] / step["bytes"])
    assert found["ridge"].result.number == pytest.approx(step["π"] / step["β"])
    assert found["rate"].result.number == pytest.approx(batch / found["step_time"].result.number)
    per_sequence = own["KV moved"] + own["state moved"] + own["logits"]
    assert found["step_bytes"].result.number == pytest.approx(own["W"] + batch * per_sequence, rel=1e-12)
    free = most["M"] - most["C"]
    assert found["largest_batch"].result.number == max(0, free // (most["KV held"] + most["state held"]))
