"""Shapes, Live sweeps, Levers: both languages, hostile links, records on show, sweeps laid over predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_up_run import made_up_ceilings
from reading import figure, said, traces
from streamlit.testing.v1 import AppTest

from engine import broker, catalogue, matrices, quality, recorded
from engine.shapes import ShapeRecord, ShapeRequest
from engine.sweeps import SweepRecord, SweepRequest
from pages._parts.words import Words

Open = Callable[..., AppTest]
COMMON = {"schema": 1, "created_at": "2026-01-02T03:04:05+00:00", "package_version": "0"}


@pytest.fixture
def kept_shape(home: Path) -> ShapeRecord:
    """The lesson's matrix in fp32, flat up to about ten rows; cancelled before its last point."""
    ceilings, rows = made_up_ceilings(), [1, 2, 4, 8, 64, 512, 1024]
    matrix = matrices.named(catalogue.load("Qwen/Qwen3.8-27B"), "mlp.up_proj")
    points = matrices.predict(matrix, "fp32", rows, ceilings)
    for point in points[:-1]:
        point.time_ns, point.samples = max(30e6, 3e6 * point.rows), 3
    record = ShapeRecord.model_validate(
        COMMON
        | {"id": "keptShape001", "state": "cancelled", "device": ceilings.device, "ceilings": ceilings}
        | {"request": ShapeRequest(weights="fp32", rows=rows), "k": matrix.k, "n": matrix.n, "count": 64}
        | {"dtype": "fp32", "weight_bytes": matrix.bytes_in("fp32"), "points": points}
    )
    broker.current().experiments.keep(record)
    return record


@pytest.fixture
def kept_sweep(home: Path) -> SweepRecord:
    """Batches of 1 and 4 of the demo model in 20 and 25 ms."""
    moved = {"weights": 538_000_000, "kv_read": 6_000_000, "kv_write": 46_000, "logits": 200_000}
    points = [
        {"value": batch, "batch": batch, "phase": "decode", "tokens": 1, "context": 128, "flops": 270_000_000 * batch,
         "moved_bytes": sum(moved.values()), "bytes": moved | {"total": sum(moved.values())},
         "working_set_bytes": sum(moved.values()), "time_ns": ms * 1e6, "samples": 3,
         "predicted_ns": {"datasheet": None, "measured_roof": 15e6, "expected": 18e6}}
        for batch, ms in ((1, 20), (4, 25))
    ]  # fmt: skip
    record = SweepRecord.model_validate(
        COMMON
        | {"id": "keptSweep001", "state": "done", "device": made_up_ceilings().device, "ceilings": made_up_ceilings()}
        | {"request": SweepRequest(values=[1, 4], dtype="float32"), "points": points}
        | {"model": {"id": "smollm2-135m", "weights": "real", "weights_hash": "a" * 64, "dtype": "float32",
                     "weight_format": "fp32", "kv_format": "fp32"}}
    )  # fmt: skip
    broker.current().experiments.keep(record)
    return record


@pytest.mark.parametrize("page", ["shapes.py", "sweeps.py", "levers.py"])
@pytest.mark.parametrize("value", ["nothing", "nothingnothi", "../../../etc", "'; drop"])
def test_a_link_to_nothing_says_so_in_one_sentence(page: str, value: str, open_page: Open) -> None:
    name = {"shapes.py": "shape", "sweeps.py": "sweep", "levers.py": "run"}[page]
    test = open_page(page, lang="en", **{name: value, "matrix_of": "x", "rows": "9e9", "axis": "'", "up_to": "-1"})
    assert not test.exception
    assert len(test.error) == (1 if page != "levers.py" or value == "nothingnothi" else len(test.error))


def test_a_shape_is_shown_with_its_knee_beside_the_ridge(open_page: Open, kept_shape: ShapeRecord) -> None:
    test = open_page("shapes.py", lang="en", shape=kept_shape.id)
    assert not test.exception
    assert "Cancelled: of 7 points asked for, 6 were measured and are kept." in said(test)
    shown = {metric.label: metric.value for metric in test.metric}
    assert shown["Knee, measured"] == "10 rows"
    assert shown["Ridge, predicted"] == "11 rows"  # 100 GFLOP/s over 18 GB/s, times 4 bytes, over 2
    names = [note["text"] for note in figure(test, "shape_time")["figure"]["layout"]["annotations"]]
    assert names == [f"ridge reading {Words('en').size(kept_shape.weight_bytes)}, fp32: 11.1 rows", "knee 10"]
    assert "This machine's ridge, with weights read from memory: 11.1 rows in fp32" in said(test)
    [curve] = traces(test, "shape_time", "measured")
    assert curve["x"] == [1, 2, 4, 8, 64, 512]
    assert test.selectbox(key="matrix").value == "mlp.up_proj"
    assert any(str(block.value).endswith(f"shape={kept_shape.id}&lang=en") for block in test.code)


def test_a_cancel_after_every_point_says_what_it_cost(open_page: Open, kept_shape: ShapeRecord) -> None:
    whole = kept_shape.model_copy(deep=True, update={"id": "keptShape002"})
    whole.points[-1].time_ns = 3e9
    broker.current().experiments.keep(whole)
    test = open_page("shapes.py", lang="en", shape=whole.id)
    assert "Cancelled once all 7 points asked for had been measured: fewer samples of each." in said(test)


def test_with_few_rows_the_page_says_what_is_missing(open_page: Open, kept_shape: ShapeRecord) -> None:
    few = kept_shape.model_copy(deep=True, update={"id": "keptShape003", "state": "done"})
    few.points = few.points[:2]
    broker.current().experiments.keep(few)
    test = open_page("shapes.py", lang="en", shape=few.id)
    shown = {metric.label: (metric.value, metric.delta) for metric in test.metric}
    assert shown["Flat until"] == ("–", "needs more rows")
    told = "\n".join(str(text.value) for text in test.get("text"))
    assert "Up to 2 rows there is no end of the flat start" in told
    assert "A knee takes at least three numbers of rows" in told


@pytest.mark.parametrize(("page", "name"), [("shapes.py", "shape"), ("sweeps.py", "sweep")])
def test_points_that_spread_widely_are_called_unsteady_and_flags_are_ringed(
    page: str, name: str, open_page: Open, kept_shape: ShapeRecord, kept_sweep: SweepRecord
) -> None:
    kept = kept_shape if name == "shape" else kept_sweep
    record = kept.model_copy(deep=True, update={"id": "keptSpread01"})
    record.points[1].spread, record.points[1].flags = 3.12, ["beats_roof"]
    broker.current().experiments.keep(record)
    test = open_page(page, lang="en", **{name: record.id})
    assert "lie up to ± 312 % around their median: this machine was not left alone" in said(test)
    chart = figure(test, f"{name}_time")
    [points] = [trace for trace in chart["figure"]["data"] if trace.get("legendgroup") == "measured"]
    assert points["marker"]["line"]["width"][:2] == [0, 2.5]
    assert "faster than it can be" in [each["name"] for each in chart["legend"]]
    kept_chart = figure(open_page(page, lang="en", **{name: kept.id}), f"{name}_time")
    assert "faster than it can be" not in [each["name"] for each in kept_chart["legend"]]


def test_ceilings_that_spread_widely_are_called_unsteady(
    open_page: Open, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ceilings = made_up_ceilings()
    ceilings.bandwidth[0].spread = 2.9
    lab = broker.current()
    view = lab.machine().model_copy(update={"ceilings": ceilings})
    monkeypatch.setattr(lab, "machine", lambda: view)
    for page in ("machine.py", "roofline.py", "batch.py"):
        test = open_page(page, lang="en", **({} if page == "machine.py" else {"device": "this-machine"}))
        assert "± 290 % around their median" in said(test)
    assert "around their median" not in said(open_page("batch.py", lang="en")), "another device's roof is not measured"


def test_a_sweep_asks_in_the_format_of_the_control(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[SweepRequest] = []

    def submit(request: SweepRequest, owner: str) -> str:
        asked.append(request)
        return "x" * 12

    monkeypatch.setattr(broker.current().experiments, "submit", submit)
    test = open_page("sweeps.py", lang="en", weights_in="int8", axis="prompt", up_to="32")
    assert test.selectbox(key="weights_in").value == "int8"
    [measure] = [button for button in test.button if button.label == "Measure"]
    measure.click().run()
    assert [(each.weights, each.dtype, each.axis, max(each.values)) for each in asked] == [
        ("int8", "float32", "prompt", 32)
    ]


def test_a_link_to_a_sweep_in_int8_starts_from_int8(open_page: Open, kept_sweep: SweepRecord) -> None:
    packed = kept_sweep.model_copy(deep=True, update={"id": "keptSweep008"})
    packed.request = SweepRequest(values=[1, 4], dtype="float32", weights="int8")
    assert packed.model is not None
    packed.model.weight_format = "int8"
    broker.current().experiments.keep(packed)
    test = open_page("sweeps.py", lang="en", sweep=packed.id)
    assert test.selectbox(key="weights_in").value == "int8"
    assert "Weights in int8, KV cache in fp32, computed in fp32." in said(test)


def test_what_is_taken_in_on_another_page_is_shown_the_way(open_page: Open, kept_sweep: SweepRecord) -> None:
    test = open_page("shapes.py", lang="en")
    test.session_state["elsewhere_shapes"] = ("sweep", kept_sweep.id)
    test.run()
    assert not test.exception
    [link] = [each.proto for each in test.get("page_link") if "Taken in and kept" in each.proto.label]
    assert link.page == "sweeps"


def test_the_drawing_is_to_scale(open_page: Open, kept_shape: ShapeRecord) -> None:
    test = open_page("shapes.py", lang="en", shape=kept_shape.id)
    rows, weights, out = figure(test, "drawn_many")["figure"]["layout"]["shapes"]
    assert weights["x1"] - weights["x0"] == 17408
    assert weights["y1"] - weights["y0"] == 5120
    assert rows["x1"] - rows["x0"] == 5120
    assert out["x1"] - out["x0"] == pytest.approx(17408)
    one = figure(test, "drawn_one")["figure"]["layout"]["shapes"][0]
    assert one["y1"] - one["y0"] < 200, "one row is a line"


def test_while_the_engine_starts_the_page_says_so(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = broker.current()
    view = lab.machine().model_copy(update={"worker": "starting"})
    monkeypatch.setattr(lab, "machine", lambda: view)
    for page in ("shapes.py", "sweeps.py"):
        assert "The engine is starting" in said(open_page(page, lang="en"))


def test_before_measuring_the_roof_stands_there(open_page: Open, measured_here: None) -> None:
    test = open_page("shapes.py", lang="en", held_in="fp32")
    [roof] = traces(test, "shape_time", "roof")
    assert roof["y"][0] == pytest.approx(5120 * 17408 * 4 / 18e9 * 1e9, rel=0.01)
    assert not traces(test, "shape_time", "measured")


def test_another_matrix_takes_the_measured_one_off_the_page(open_page: Open, kept_shape: ShapeRecord) -> None:
    test = open_page("shapes.py", lang="en", shape=kept_shape.id)
    test.selectbox(key="matrix").set_value(next(o for o in test.selectbox(key="matrix").options if "down" in o)).run()
    assert not test.exception
    assert not test.metric
    assert "shape" not in test.query_params


def test_a_sweep_says_what_it_found_and_where_it_can_be_laid(open_page: Open, kept_sweep: SweepRecord) -> None:
    test = open_page("sweeps.py", lang="en", sweep=kept_sweep.id)
    assert not test.exception
    told = "\n".join(str(text.value) for text in test.get("text"))
    assert "4 times the tokens in 1.25 times the time, so 3.20 times the tokens a second" in told
    [points] = traces(test, "sweep_rate", "measured")
    assert points["y"] == [pytest.approx(50), pytest.approx(160)]


def test_a_sweep_lies_over_roofline_and_batch(open_page: Open, kept_sweep: SweepRecord) -> None:
    test = open_page("batch.py", lang="en", model="smollm2-135m", runs=kept_sweep.id)
    drawn = {point["x"][0]: point["y"][0] for point in traces(test, "throughput_figure", "measured")}
    assert drawn == {1.0: pytest.approx(50), 4.0: pytest.approx(160)}
    over = open_page("roofline.py", lang="en", model="smollm2-135m", runs=kept_sweep.id)
    assert len(traces(over, "roofline_figure", "measured")) == 2


def test_levers_of_a_recorded_run_are_predicted_and_not_measured_here(open_page: Open) -> None:
    shipped = next(run for run in recorded.runs().values() if run.request.model == "smollm2-135m")
    test = open_page("levers.py", lang="en", run=shipped.id)
    assert not test.exception
    assert "not by this machine as it is now" in said(test)
    assert "predicted only" in said(test)
    assert all(button.disabled for button in test.button if button.label == "Measure")
    assert not broker.current().experiments.newest("levers", 5), "looking at a forecast keeps none"
    captions = [caption.value for caption in test.caption if "perplexity" in caption.value]
    found = quality.of("smollm2-135m", "int8")
    assert found is not None
    assert any(f"perplexity {found.perplexity['en']:.1f} in English" in text for text in captions)


def test_a_forecast_is_kept_before_its_measurement_is_asked_for(
    open_page: Open, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pages._parts import lever_results

    shipped = max(recorded.runs().values(), key=lambda run: run.created_at)
    lab, order = broker.current(), list[str]()
    monkeypatch.setattr(
        lab, "submit", lambda request, owner: order.append(f"kept {len(lab.experiments.newest('levers', 5))}")
    )
    forecast, is_kept = lever_results.forecast_of(shipped)
    assert not is_kept
    [batch] = [lever for lever in forecast.levers if lever.kind == "batch"]
    lever_results.pull(shipped, batch, "me")
    lever_results.pull(shipped, batch, "me")
    assert order == ["kept 1", "kept 1"]
    assert lever_results.forecast_of(shipped) == (forecast, True)
