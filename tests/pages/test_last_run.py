"""The run just measured is one press away on every prediction page; another machine's is not offered as one's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reading import at, figure, traces
from streamlit.testing.v1 import AppTest

from engine import recorded

Open = Callable[..., AppTest]
PAGES = ("roofline.py", "batch.py", "memory.py", "devices.py")


def _offers(test: AppTest) -> list[object]:
    return [button for button in test.button if button.label.startswith("Show my last run")]


@pytest.mark.parametrize("page", PAGES)
def test_a_press_sets_the_page_to_the_run(page: str, open_page: Open, kept_run: str, measured_here: None) -> None:
    test = open_page(page, run=kept_run, lang="en")
    [button] = _offers(test)
    test = button.click().run()  # type: ignore[attr-defined]
    assert not test.exception
    assert not _offers(test)
    assert test.session_state["scene"].runs == kept_run
    assert test.session_state["scene"].model == "smollm2-135m"
    assert f"runs={kept_run}" in test.code[-1].value


def test_the_points_are_those_of_the_run(open_page: Open, kept_run: str, measured_here: None) -> None:
    [button] = _offers(open_page("roofline.py", run=kept_run, lang="en"))
    test = button.click().run()  # type: ignore[attr-defined]
    assert len(traces(test, "roofline_figure", "measured")) == 2
    assert at(test, "roofline_figure", "prefill")[0] > 0
    assert figure(test, "bytes_figure")


def test_after_it_the_next_page_shows_the_same_run(open_page: Open, kept_run: str, measured_here: None) -> None:
    [button] = _offers(open_page("roofline.py", run=kept_run, lang="en"))
    test = button.click().run()  # type: ignore[attr-defined]
    test.switch_page("batch.py").run()
    assert test.session_state["scene_model"] == "smollm2-135m"
    assert test.session_state["scene_runs"] == [kept_run]


@pytest.mark.parametrize("page", ["roofline.py", "devices.py"])
def test_without_a_run_of_ones_own_nothing_is_offered(page: str, open_page: Open, measured_here: None) -> None:
    assert not _offers(open_page(page, lang="en"))
    assert not _offers(open_page(page, run=next(iter(recorded.runs())), lang="en"))  # it shipped with the lab
