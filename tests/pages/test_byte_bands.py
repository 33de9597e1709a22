"""Each kind of memory is a band of its own, in its own colour and by its own name, where a model has it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from reading import figure, traces
from streamlit.testing.v1 import AppTest

from pages._parts import figures, live_data, palette

Open = Callable[..., AppTest]
CHART_JS = Path(live_data.__file__).parent / "live_view" / "chart.js"


@pytest.mark.parametrize(
    ("model", "bands"),
    [
        ("Qwen/Qwen3.8-27B", {"weights", "kv", "state", "conv", "logits"}),
        ("Qwen/Qwen3-30B-A3B", {"weights", "experts", "kv", "logits"}),
        ("openai/gpt-oss-20b", {"weights", "experts", "kv", "window", "logits"}),
        ("deepseek-ai/DeepSeek-V3", {"weights", "experts", "latent", "logits"}),
        ("moonshotai/Kimi-Linear-48B-A3B-Instruct", {"weights", "experts", "latent", "state", "conv", "logits"}),
    ],
)
def test_the_roofline_pages_bytes_bar(open_page: Open, model: str, bands: set[str]) -> None:
    test = open_page("roofline.py", lang="en", model=model, preset="engine", context="4096")
    assert not test.exception
    shown = {item["group"]: item["colour"] for item in figure(test, "bytes_figure")["legend"]}
    assert set(shown) == bands
    assert shown == {band: figures.KIND_COLOURS[band] for band in bands}
    decode = sum(trace["x"][0] for trace in figure(test, "bytes_figure")["figure"]["data"])
    assert decode > 0


def test_kv_and_state_draws_a_window_that_stops_and_the_whole_that_does_not(open_page: Open) -> None:
    test = open_page("memory.py", lang="en", model="google/gemma-3-1b-it", models="google/gemma-3-1b-it")
    [window] = traces(test, "inside_held", "window")
    [full] = traces(test, "inside_held", "kv")
    [whole] = traces(test, "inside_held", "whole")
    assert window["y"][-1] == window["y"][-5] < full["y"][-1]
    assert whole["y"][-1] == pytest.approx(window["y"][-1] + full["y"][-1])
    assert window["line"]["color"] == palette.WINDOW
    columns = list(test.dataframe[0].value.columns)
    assert "KV of sliding windows" in columns
    assert "compressed KV (latent)" not in columns


def test_kv_and_state_draws_latent_and_conv(open_page: Open) -> None:
    model = "moonshotai/Kimi-Linear-48B-A3B-Instruct"
    test = open_page("memory.py", lang="en", model=model, models=model, preset="engine")
    drawn = {trace["legendgroup"] for trace in figure(test, "inside_held")["figure"]["data"]}
    assert {"latent", "state", "conv"} <= drawn
    assert not traces(test, "inside_held", "kv")


def test_the_live_chart_has_the_same_kinds() -> None:
    kinds = ", ".join(f'"{kind}"' for kind in figures.KIND_COLOURS)
    assert f"const KINDS = [{kinds}]" in CHART_JS.read_text()
