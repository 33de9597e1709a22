"""What the browser says may be older than what the lab wrote meanwhile, in the address and in its controls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from streamlit.runtime.state.query_params import QueryParams
from streamlit.testing.v1 import AppTest

Open = Callable[..., AppTest]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The addresses that were sent to the browser."""
    found: list[dict[str, str]] = []
    send = QueryParams._send_query_param_msg

    def noted(params: QueryParams) -> None:
        found.append(params.to_dict())
        send(params)

    monkeypatch.setattr(QueryParams, "_send_query_param_msg", noted)
    return found


def test_a_scene_is_written_over_what_is_still_under_way(open_page: Open, sent: list[dict[str, str]]) -> None:
    test = open_page("batch.py", lang="en", batch="30")
    before = dict(test.query_params)
    test.select_slider(key="scene_batch").set_value(58).run()
    assert sent[-1]["batch"] == "58"
    test.query_params.clear()  # the browser has not got that yet when the slider goes back
    for name, value in before.items():
        test.query_params[name] = value
    test.select_slider(key="scene_batch").set_value(30).run()
    assert sent[-1]["batch"] == "30", "or 58 arrives last, and stays"


def test_so_are_the_controls_of_a_run(open_page: Open, sent: list[dict[str, str]]) -> None:
    test = open_page(lang="en", length="64")
    before = dict(test.query_params)
    test.number_input(key="length").set_value(100).run()
    assert sent[-1]["length"] == "100"
    test.query_params.clear()
    for name, value in before.items():
        test.query_params[name] = value
    test.number_input(key="length").set_value(64).run()
    assert sent[-1]["length"] == "64"


@pytest.mark.parametrize(
    ("page", "key", "named", "meant"),
    [
        ("live_run.py", "model", "tiny-3.7m（随机权重）", "tiny-3.7m"),
        ("live_run.py", "weights", "与计算相同", "int8"),
        ("roofline.py", "scene_device", "本机", "this-machine"),
        ("roofline.py", "scene_weights", "按发布时", "int8"),
    ],
)
def test_an_option_named_in_another_language_is_no_choice(
    open_page: Open, page: str, key: str, named: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = open_page(page, lang="en", **{key.removeprefix("scene_"): meant})
    assert test.session_state[key] == meant
    box = test.selectbox(key=key)
    box.options.append(named)  # the browser sends what an option is called
    usual = type(box).format_func
    monkeypatch.setattr(
        type(box),
        "format_func",
        property(lambda each: lambda value: value if value == named else usual.fget(each)(value)),
    )
    box.set_value(named).run()
    assert not test.exception
    assert test.query_params[key.removeprefix("scene_")] in (meant, [meant])
    test.run()
    assert test.session_state[key] == meant
