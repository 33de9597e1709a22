"""Levers: the run's own on one axis, other devices and models on another, each named with what it replaces."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reading import figure, said, traces
from streamlit.testing.v1 import AppTest

from engine import broker, levers
from engine.errors import Sentence
from engine.lever_outcome import mark
from engine.lever_record import PULLED
from engine.store import RunRow
from pages._parts import lever_results, runs

Open = Callable[..., AppTest]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_other_devices_and_models_do_not_stand_on_the_run_s_axis(language: str, open_page: Open) -> None:
    shipped = runs.shipped()
    assert shipped is not None
    forecast = levers.forecast(shipped)
    gains = {lever.kind: lever.gain for lever in forecast.levers}
    test = open_page("levers.py", lang=language, run=shipped.id)
    assert not test.exception
    [own] = traces(test, "levers_figure", "predicted")
    [replaced] = traces(test, "replaced_figure", "replaced")
    assert sorted(own["x"]) == sorted(lever.gain for lever in forecast.levers if lever.kind in PULLED)
    assert sorted(replaced["x"]) == sorted(gains[kind] for kind in ("device", "mixture", "hybrid"))
    names = " ".join(replaced["y"])
    assert all(name in names for name in ("H100", "Qwen3-30B-A3B", "Qwen3.8-27B", "Qwen3-32B"))


def test_a_swatch_looks_like_what_it_names(open_page: Open) -> None:
    shipped = runs.shipped()
    assert shipped is not None
    test = open_page("levers.py", lang="en", run=shipped.id)
    for key in ("levers_figure", "replaced_figure"):
        legend = {each["group"]: each for each in figure(test, key)["legend"]}
        drawn = {trace["legendgroup"]: trace for trace in figure(test, key)["figure"]["data"] if any(trace["x"])}
        assert set(legend) == set(drawn)
        for group, trace in drawn.items():
            outlined = trace["marker"]["color"] == "rgba(0,0,0,0)"
            assert legend[group]["mark"] == ("frame" if outlined else "box")
            assert legend[group]["colour"] == (
                trace["marker"]["line"]["color"] if outlined else trace["marker"]["color"]
            )
    assert "these gains and those above do not multiply" in said(test)


def test_a_lever_whose_measurement_failed_says_why(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = runs.shipped()
    assert shipped is not None
    forecast, lab = levers.forecast(shipped), broker.current()
    lever = next(each for each in forecast.levers if each.request is not None and each.kind != "lookup")
    assert lever.request is not None
    lost = shipped.model_copy(
        update={
            "id": "lostlostlost",
            "state": "failed",
            "error": Sentence(template="The engine's process was killed."),
            "request": mark(lever.request, forecast.id, lever.name),
        }
    )
    won = lost.model_copy(update={"id": "wonwonwonwon", "state": "done", "error": None})
    monkeypatch.setattr(lever_results, "forecast_of", lambda _run: (forecast, True))
    monkeypatch.setattr(lab, "record", lambda run_id: {lost.id: lost, won.id: won}.get(run_id, shipped))
    for newest, expected in ([lost], 1), ([lost, won], 1), ([won, lost], 0):
        monkeypatch.setattr(lab, "runs", lambda *_, newest=newest: [RunRow.of(each) for each in newest])
        test = open_page("levers.py", lang="en", run=shipped.id)
        assert not test.exception
        assert sum("process was killed" in each.value for each in test.error) == expected


def test_each_forecast_from_unsteady_ceilings_is_marked(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = runs.shipped()
    assert shipped is not None
    assert shipped.ceilings is not None
    calm = open_page("levers.py", lang="en", run=shipped.id)
    assert "(unsure)" not in said(calm)
    wild = shipped.model_copy(update={"ceilings": shipped.ceilings.model_copy(update={"launch_spread": 24.0})})
    monkeypatch.setattr(runs, "find", lambda _id: wild)
    test = open_page("levers.py", lang="en", run=shipped.id)
    assert "most at starting an operation: ± 2,400 %" in said(test)
    for key, group in (("levers_figure", "predicted"), ("replaced_figure", "replaced")):
        [bars] = traces(test, key, group)
        assert all(text.endswith("(unsure)") for text in bars["text"])
    assert said(test).count("(unsure)") == len(levers.forecast(shipped).levers)
