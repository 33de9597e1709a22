"""Every page in every language and with every kind of address: no exception, and what it is for is there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from reading import said
from streamlit.testing.v1 import AppTest

from engine import broker, recorded
from pages._parts.controls import FIRST_PROMPTS

Open = Callable[..., AppTest]


@pytest.mark.parametrize("lang", ["fr", "", "zh'; drop", "中文"])
def test_an_unknown_language_is_english(lang: str, open_page: Open) -> None:
    test = open_page(lang=lang)
    assert not test.exception
    assert test.title[0].value == "Live run"
    assert [each.value for each in test.warning if "says of lang cannot be" in each.value]


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ("../../etc/passwd", "The run in this address cannot exist"),
        ("", "The run in this address cannot exist"),
        ("<script>ab</", "The run in this address cannot exist"),
        ("AAAAAAAAAAAA", "There is no run AAAAAAAAAAAA here"),
    ],
)
def test_a_run_that_is_not_there_is_one_clear_sentence(run: str, sentence: str, open_page: Open) -> None:
    test = open_page(run=run, lang="en")
    assert not test.exception
    assert len(test.error) == 1
    assert sentence in said(test)


@pytest.mark.parametrize(
    "query",
    [
        {"length": "0"},
        {"length": "abc", "batch": "-1", "top_p": "inf"},
        {"model": "no/such-model"},
        {"model": "../../x", "seed": "9" * 400},
        {"dtype": "float128", "chat": "maybe", "unknown": "x" * 5000},
    ],
)
def test_hostile_controls_leave_a_page_that_works(query: dict[str, str], open_page: Open) -> None:
    test = open_page(lang="en", **query)
    assert not test.exception
    assert [button for button in test.button if button.label == "Run"]


def test_the_address_sets_the_controls(open_page: Open) -> None:
    test = open_page(
        lang="en", model="tiny-3.7m", length="17", batch="3", temperature="0.7", chat="0", dtype="bfloat16"
    )
    assert test.selectbox(key="model").value == "tiny-3.7m"
    assert test.number_input(key="length").value == 17
    assert test.number_input(key="batch").value == 3
    assert test.number_input(key="temperature").value == 0.7
    assert test.selectbox(key="dtype").value == "bfloat16"


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [("   ", "The prompt is empty"), ("x" * 1_000_000, "at most 200,000")],
)
def test_a_prompt_that_cannot_run_is_one_clear_sentence_and_stays(prompt: str, sentence: str, open_page: Open) -> None:
    test = open_page(lang="en")
    test.text_area(key="prompt").set_value(prompt)
    [press] = [button for button in test.button if button.label == "Run"]
    press.click().run()
    assert not test.exception
    assert sentence in said(test)
    assert test.session_state["prompt"] == prompt
    assert broker.current().active_run(test.session_state["owner"]) is None


def test_an_example_fills_the_prompt(open_page: Open) -> None:
    test = open_page(lang="en")
    test.button_group(key="example").select("A question").run()
    assert test.text_area(key="prompt").value == "Why is the sky blue?"


def test_a_first_visit_shows_a_recorded_run_or_says_what_to_do(open_page: Open) -> None:
    test = open_page(lang="en")
    told = said(test)
    assert ("not on the machine you are using now" in told) == bool(recorded.runs())
    assert "this machine cannot read" not in told  # of another machine than the reader's


def test_a_recorded_run_names_its_own_prompt_machine_and_day(open_page: Open) -> None:
    test = open_page(lang="en")
    [shown] = [each.value.replace("\\", "") for each in test.markdown if "recorded" in each.value]
    run = max(recorded.runs().values(), key=lambda each: each.created_at)
    assert run.device is not None
    assert run.device.name in shown
    assert run.request.prompt in shown
    assert run.created_at[:4] in shown


@pytest.mark.parametrize(("first", "then"), [("en", "zh"), ("zh", "en")])
def test_the_first_prompt_is_in_the_pages_language_until_the_reader_writes(
    open_page: Open, first: str, then: str
) -> None:
    test = open_page(lang=first)
    assert test.text_area(key="prompt").value == FIRST_PROMPTS[first]
    test.query_params["lang"] = then
    assert test.run().text_area(key="prompt").value == FIRST_PROMPTS[then]
    test.text_area(key="prompt").set_value("mine").run()
    test.query_params["lang"] = first
    assert test.run().text_area(key="prompt").value == "mine"


def test_a_machine_never_measured_says_so_and_offers_it(open_page: Open) -> None:
    test = open_page("machine.py", lang="en")
    assert "has not been measured yet" in said(test)
    assert [button for button in test.button if button.label == "Measure this machine"]
