"""Levers: each prediction against a count by hand, kept before anything is measured, and what is said of a miss."""

from __future__ import annotations

from pathlib import Path

import pytest
from records import forged
from records import run as small_run
from service import new_store

from engine import experiment_record, ledger, levers, lookup, lookups, recorded
from engine.errors import LabError
from engine.lever_base import Base
from engine.lever_outcome import mark, marks_of, miss
from engine.lever_record import Lever, LeversRecord
from engine.record import Run, RunRequest
from engine.store import RunRow

PARAMETERS = 134_515_008
"""Of SmolLM2-135M, as its model card's checkpoint has them; the head is the embedding's own table."""


@pytest.fixture(scope="module")
def demo() -> Run:
    [found] = [run for run in recorded.runs().values() if run.request.model == "smollm2-135m"]
    return found


@pytest.fixture(scope="module")
def forecast(demo: Run) -> LeversRecord:
    return levers.forecast(demo)


def lever(forecast: LeversRecord, name: str) -> Lever:
    """One lever by name."""
    [found] = [each for each in forecast.levers if each.name == name]
    return found


@pytest.mark.parametrize(("format_", "share"), [("bf16", 1 / 2), ("int8", 1 / 4)])
def test_fewer_bytes_save_the_time_of_reading_them(
    format_: str, share: float, demo: Run, forecast: LeversRecord
) -> None:
    """Half (a quarter) of the matrices' bytes at this machine's bandwidth, the head's among them."""
    assert demo.ceilings is not None
    saved_ns = 4 * PARAMETERS * (1 - share) / demo.ceilings.bandwidth[-1].bytes_per_s * 1e9
    found = lever(forecast, f"weights-{format_}")
    assert forecast.base.step_ns - found.predicted.step_ns == pytest.approx(saved_ns, rel=0.06)
    assert found.gain == pytest.approx(forecast.base.step_ns / found.predicted.step_ns)


def test_a_batch_gains_tokens_in_all_and_its_step_takes_longer(forecast: LeversRecord) -> None:
    found = lever(forecast, "batch-8")
    assert found.predicted.step_ns > forecast.base.step_ns
    assert found.predicted.tokens_per_s == pytest.approx(8 / found.predicted.step_ns * 1e9)
    assert 1 < found.gain < 8
    assert found.request is not None
    assert found.request.batch == 8


def test_a_run_whose_lines_were_scaled_is_foretold_as_one_whose_were_not(demo: Run, forecast: LeversRecord) -> None:
    """Twice as slow before the run as when it was measured: every step is, and no lever gains more or less by it."""
    assert demo.probe is not None
    slow = demo.model_copy(deep=True)
    assert slow.probe is not None
    slow.probe.reading_scaled_by = slow.probe.multiplying_scaled_by = 2.0
    for step in slow.steps:
        step.predicted_ns.expected *= 2
    again = levers.forecast(slow)
    assert again.base.step_ns == pytest.approx(2 * forecast.base.step_ns)
    for name in ("batch-8", "weights-int8", "weights-bf16", "lookup"):
        assert lever(again, name).gain == pytest.approx(lever(forecast, name).gain, rel=0.01), name


def test_drafts_are_foretold_from_the_answer_that_is_known(demo: Run, forecast: LeversRecord) -> None:
    assert demo.prompt is not None
    checks = lookup.foretell(demo.prompt.token_ids, demo.output.token_ids, levers.DRAFTS)
    found = lever(forecast, "lookup")
    assert found.foretold_passes == len(checks)
    assert sum(check.gained for check in checks) == len(demo.output.token_ids) - 1


def test_the_card_is_predicted_by_its_data_sheet_and_cannot_be_measured(demo: Run, forecast: LeversRecord) -> None:
    """538 MB of weights at 3.35 TB/s are 0.161 ms; the cache adds a little."""
    found = lever(forecast, levers.CARD)
    assert found.request is None
    assert found.predicted.step_ns == pytest.approx(4 * PARAMETERS / 3.35e12 * 1e9, rel=0.03)


def test_a_mixture_reads_a_tenth_of_its_dense_sibling(forecast: LeversRecord) -> None:
    """Qwen's own figures: 3.3 billion of 30.5 active, against 32.8 billion in the dense model."""
    assert lever(forecast, "mixture").gain == pytest.approx(32.8 / 3.3, rel=0.1)
    assert lever(forecast, "hybrid").gain > 1.5


def test_what_this_engine_cannot_run_is_predicted_only(forecast: LeversRecord) -> None:
    for each in forecast.levers:
        if each.request is not None:
            levers.request.check(each.request)
    assert [
        each.name for each in forecast.levers if each.kind in ("device", "mixture", "hybrid") and each.request
    ] == []


@pytest.mark.parametrize(("kv", "share"), [("bf16", 1 / 2), ("int8", 66 / 256)])
def test_a_smaller_cache_can_be_pulled_and_saves_its_bytes(
    kv: str, share: float, demo: Run, forecast: LeversRecord
) -> None:
    """30 layers, keys and values of 3 heads of 64 fp32 numbers; int8 has a scale of two bytes beside 64 of one."""
    found = lever(forecast, f"kv-{kv}")
    assert found.request is not None
    assert (found.request.kv, found.request.dtype) == (kv, "float32")
    context = sorted(step.context for step in demo.steps if step.phase == "decode")[(len(demo.steps) - 1) // 2]
    assert demo.ceilings is not None
    saved_ns = 30 * 2 * 3 * 256 * context * (1 - share) / demo.ceilings.bandwidth[-1].bytes_per_s * 1e9
    assert forecast.base.step_ns - found.predicted.step_ns == pytest.approx(saved_ns, rel=0.1)


def test_a_smaller_cache_that_cannot_be_held_here_is_predicted_only(demo: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_KERNELS", "torch")
    assert lever(levers.forecast(demo), "kv-int8").request is None


def test_one_check_costs_a_step_and_what_its_rows_add(demo: Run) -> None:
    base = Base(demo)
    lines = base.lines()
    assert levers.check_ns(lines, 1, 50) == lines.decode(50).predicted_ns.expected
    more = levers.check_ns(lines, 6, 50)
    assert more >= lines.prefill(6).predicted_ns.expected
    step = ledger.decode(base.spec, 50, formats=base.formats)
    assert step.bytes.total == lines.decode(50).ledger.bytes.total


def test_a_run_without_steps_or_ceilings_has_no_levers() -> None:
    run = small_run()
    with pytest.raises(LabError, match="no decode step to improve"):
        levers.forecast(run.model_copy(update={"steps": run.steps[:1]}))
    with pytest.raises(LabError, match="no decode step to improve"):
        levers.forecast(run.model_copy(update={"ceilings": None}))


def test_a_run_says_which_forecast_it_answers(demo: Run) -> None:
    asked = mark(demo.request, "forecastfore", "batch-8")
    again = RunRequest.model_validate_json(asked.model_dump_json())
    assert marks_of(again) == ("forecastfore", "batch-8")
    assert marks_of(demo.request) == ("", "")
    row = RunRow.of(demo.model_copy(update={"request": again}))
    assert (row.forecast, row.lever) == ("forecastfore", "batch-8")


def test_a_forecast_is_kept_and_found_by_its_run(demo: Run, forecast: LeversRecord, tmp_path: Path) -> None:
    store = new_store(tmp_path)
    store.put_experiment(forecast)
    [row] = store.experiments("levers", 5, demo.request.model)
    assert (row.id, row.belongs_to) == (forecast.id, demo.id)
    assert store.get_experiment(forecast.id) == forecast
    assert experiment_record.from_json(forecast.to_json()) == forecast


def test_a_forecast_survives_its_file(forecast: LeversRecord) -> None:
    again = experiment_record.read(forecast.to_json().encode())
    assert again.model_dump(exclude={"imported_at"}) == forecast.model_dump()


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("base", "step_ns"), 0, "base.step_ns is wrong"),
        (("base", "tokens_per_s"), 1e300, "base.tokens_per_s is wrong"),
        (("levers", 0, "gain"), -1, "gain is wrong"),
        (("levers", 0, "gain"), 40.0, "gives 40.00 times the tokens; its own figures give"),
        (("levers", 0, "name"), "weights-int8", "names a lever twice"),
        (("levers", 0, "foretold_acceptance"), 1.5, "foretold_acceptance is wrong"),
        (("levers", 0, "request", "batch"), 0, "The batch is 0"),
        (("levers", 0, "what", "template"), "{x:>99999999}", "plain names in braces"),
    ],
)
def test_a_forged_forecast_is_refused_in_one_sentence(
    path: tuple[object, ...], value: object, sentence: str, forecast: LeversRecord
) -> None:
    with pytest.raises(LabError) as refused:
        experiment_record.read(forged(forecast, path, value))
    assert sentence in str(refused.value)


def test_a_run_with_packed_weights_has_drafts_too(demo: Run) -> None:
    assert demo.model is not None
    packed = demo.model_copy(
        update={
            "model": demo.model.model_copy(update={"weight_format": "int8"}),
            "request": demo.request.model_copy(update={"weights": "int8"}),
        }
    )
    found = lever(levers.forecast(packed), "lookup")
    assert found.request is not None
    assert lookups.of_run(found.request, drafts=found.drafts).weights == "int8"
    assert found.predicted.tokens_per_s > lever(levers.forecast(demo), "lookup").predicted.tokens_per_s


@pytest.mark.parametrize(
    ("held", "offered"),
    [
        ({"kv_format": "bf16"}, ["weights-bf16", "weights-int8", "weights-int4", "kv-int8"]),
        ({"kv_format": "int8"}, ["weights-bf16", "weights-int8", "weights-int4"]),
        ({"weight_format": "int8"}, ["weights-int4", "kv-bf16", "kv-int8"]),
        ({"weight_format": "int4-g32"}, ["kv-bf16", "kv-int8"]),
    ],
)
def test_only_what_is_narrower_than_the_runs_own_format_is_a_lever(
    held: dict[str, str], offered: list[str], demo: Run
) -> None:
    assert demo.model is not None
    run = demo.model_copy(update={"model": demo.model.model_copy(update=held)})
    assert [each.name for each in levers.forecast(run).levers if each.kind in ("weights", "kv")] == offered


def test_a_miss_has_its_sentence(forecast: LeversRecord) -> None:
    batch = lever(forecast, "batch-8")
    assert "As predicted" in str(miss(batch, batch.gain * 1.05))
    assert "kernel for several rows" in str(miss(batch, batch.gain / 2))
    assert "More than predicted" in str(miss(batch, batch.gain * 2))
    assert "says nothing yet" in str(miss(batch, batch.gain / 2, disturbed=True))
    for each in forecast.levers:
        assert str(miss(each, each.gain / 3))
        assert str(miss(each, each.gain * 3))
