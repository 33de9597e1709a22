"""The cache's format on *Live run*: in the address, beside the weights' format, and in what Run asks for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from engine import broker, quality, recorded
from engine.record import RunRequest

Open = Callable[..., AppTest]


def _asked(test: AppTest, monkeypatch: pytest.MonkeyPatch) -> RunRequest:
    """What pressing Run asks the engine for."""
    requests: list[RunRequest] = []
    monkeypatch.setattr(broker.current(), "submit", lambda request, owner: requests.append(request) or "AAAAAAAAAAAA")
    [press] = [button for button in test.button if button.label == "Run"]
    press.click().run()
    [request] = requests
    return request


def test_the_address_sets_it_and_run_asks_for_it(open_page: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    test = open_page(lang="en", model="tiny-3.7m", kv="int8")
    assert test.selectbox(key="kv").value == "int8"
    assert _asked(test, monkeypatch).kv == "int8"


def test_a_choice_is_kept_in_the_address(open_page: Open) -> None:
    test = open_page(lang="en", weights="int8")  # which opens what is folded away
    assert test.selectbox(key="kv").value == "same"
    test.selectbox(key="kv").set_value("bf16").run()
    assert not test.exception
    assert test.query_params["kv"] == "bf16"


@pytest.mark.parametrize("query", [{}, {"kv": "q4_0"}, {"kv": "int8", "dtype": "bfloat16"}])
def test_else_the_cache_is_held_in_what_is_computed_in(
    query: dict[str, str], open_page: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _asked(open_page(lang="en", model="tiny-3.7m", **query), monkeypatch).kv is None


def test_levers_show_what_a_rounded_cache_costs_in_quality(open_page: Open) -> None:
    shipped = next(run for run in recorded.runs().values() if run.request.model == "smollm2-135m")
    test = open_page("levers.py", lang="en", run=shipped.id)
    captions = [caption.value for caption in test.caption if "perplexity" in caption.value]
    for kv in ("bf16", "int8"):
        found = quality.of("smollm2-135m", "fp32", kv)
        assert found is not None
        assert any(f"perplexity {found.perplexity['en']:.1f} in English" in text for text in captions)
