"""The path: every step on its page with its settings, in both languages; addresses; questions and their numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_run import finished_run, made_up_ceilings
from streamlit.testing.v1 import AppTest

from engine import broker, lesson, recorded
from engine.record import Probe
from pages._lesson import addresses
from pages._lesson.glossary import MARK, TERMS
from pages._lesson.learned import LEARNED, ONWARD
from pages._lesson.misconceptions import BELIEFS
from pages._lesson.steps import BY_ID, DONE, STEPS, Step
from pages._parts import terms
from pages._parts.words import Words
from pages._words.extract import catalogue, messages

Open = Callable[..., AppTest]
ROOT = Path(__file__).parents[2]


def data_of(test: AppTest, key: str = "path") -> dict[str, Any]:
    """What the card's component was given."""
    [found] = [each.proto for each in test.get("bidi_component") if each.proto.id.endswith(f"-{key}")]
    return dict(json.loads(found.json))


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.id)
def test_a_step_opens_on_its_page_with_its_settings(step: Step, language: str, open_page: Open) -> None:
    test = open_page(step=step.id, lang=language)  # any address of the lab leads there
    assert not test.exception
    data = data_of(test)
    assert (data["mode"], data["current"]) == ("card", step.id)
    # A page leaves an address without the values that are its own defaults.
    assert all(test.query_params.get(name, value) in (value, [value]) for name, value in step.query.items())
    card = data["card"]
    assert "{" not in card["idea"] + card["see"] + card["question"]["text"].replace("{}", "")
    marked = {term for text in (card["idea"], card["do"], card["see"]) for _, term in MARK.findall(text)}
    assert marked <= set(card["terms"])
    assert card["question"]["answers"]
    assert data["notice"] is None


def test_the_steps_of_the_path_are_the_lesson_s() -> None:
    assert [step.id for step in STEPS] == [
        "question", "request", "first-guess", "where-it-fails", "roofline", "two-phases", "one-matrix", "state-and-kv",
        "batch", "misconceptions", "still-open",
    ]  # fmt: skip
    assert not set(addresses.ALIASES) & set(BY_ID)
    assert set(addresses.ALIASES.values()) <= set(BY_ID)
    assert set(LEARNED) == {step.id for step in STEPS}


@pytest.mark.parametrize(
    ("raw", "expected", "said"),
    [
        ("batch", "batch", None),
        (" Batch ", "batch", None),
        ("3", "first-guess", None),
        ("99", "still-open", "99"),
        ("done", "done", None),
        ("matrix", "one-matrix", "matrix"),
        ("two-phase", "two-phases", "two-phase"),
        ("../../etc", "question", "../../etc"),
        ("", "question", ""),
    ],
)
def test_an_address_finds_its_step_or_the_nearest(raw: str, expected: str, said: str | None) -> None:
    found = addresses.find(raw)
    assert (found.step.id, found.asked) == (expected, said)


@given(st.text())
def test_no_address_breaks_the_path(raw: str) -> None:
    assert addresses.find(raw).step in (*STEPS, DONE)


def test_a_renamed_step_says_so_in_one_sentence(open_page: Open) -> None:
    test = open_page(step="shapes", lang="en")
    data = data_of(test)
    assert data["current"] == "one-matrix"
    assert data["notice"] == "The path has no step shapes; this is the nearest one."


def test_a_page_without_a_step_has_no_card(open_page: Open) -> None:
    test = open_page("roofline.py", lang="en")
    assert not [each for each in test.get("bidi_component") if each.proto.id.endswith("-path")]


def test_off_the_path_a_page_says_the_way_back(open_page: Open) -> None:
    test = open_page(step="batch", lang="en")
    test.query_params.clear()  # as a switch between pages does
    test.switch_page("machine.py").run()
    data = data_of(test)
    assert (data["mode"], data["current"]) == ("away", "batch")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_nothing_before_a_question_speaks_of_what_only_its_answer_shows(language: str) -> None:
    t = Words(language)
    told = re.compile(r"\b(chart|below|above)\b" if language == "en" else "下面|上面|图上|下图")
    assert [step.id for step in STEPS if told.search(t(step.idea))] == []


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_end_of_the_path_has_every_question_and_ways_on(language: str, open_page: Open, kept_run: str) -> None:
    test = open_page(step="done", lang=language, run=kept_run)  # any address of the lab leads there
    assert not test.exception
    assert test.title[0].value == Words(language)(DONE.title)
    data = data_of(test)
    assert (data["mode"], data["current"], data["end"]["id"]) == ("end", "done", "done")
    assert [each["id"] for each in data["asked"]] == [step.id for step in STEPS]
    assert all(each["question"]["answers"] and "{" not in each["learned"] for each in data["asked"])
    kinds = {each["id"]: {answer["kind"] for answer in each["question"]["answers"]} for each in data["asked"]}
    assert kinds["question"] == {"predicted", "measured"}
    assert len(data["onward"]) == len(ONWARD)
    assert all(f"lang={language}" in each["href"] for each in data["onward"])


def test_who_is_at_the_end_has_left_the_path(open_page: Open) -> None:
    test = open_page(step="done", lang="en")
    test.query_params.clear()
    test.switch_page("machine.py").run()
    assert not [each for each in test.get("bidi_component") if each.proto.id.endswith("-path")]
    test.switch_page("path.py").run()
    assert data_of(test)["mode"] == "overview"


def test_the_overview_opens_in_the_middle_of_the_path(open_page: Open) -> None:
    test = open_page(step="batch", lang="en")
    test.query_params.clear()
    test.switch_page("path.py").run()
    assert not test.exception
    assert data_of(test)["mode"] == "overview"


def test_a_step_says_which_run_it_looks_at(open_page: Open, kept_run: str) -> None:
    for step in ("question", "request", "where-it-fails", "two-phases"):
        here = data_of(open_page(step=step, lang="en", run=kept_run))["card"]["here"]
        assert "smollm2-135m" in here["text"]
        assert f"run={kept_run}" in here["link"]
    shipped = data_of(open_page(step="two-phases", lang="en"))["card"]["here"]
    newest = max(recorded.runs().values(), key=lambda run: run.created_at)
    assert "a recorded one" in shipped["text"]
    assert newest.id in shipped["link"]


@pytest.mark.parametrize(("language", "said"), [("en", "11.1 rows in fp32"), ("zh", "fp32 为 11.1 行")])
def test_each_step_with_a_ridge_says_whose_and_in_which_format(
    language: str, said: str, open_page: Open, measured_here: None
) -> None:
    for step in ("roofline", "two-phases", "one-matrix", "batch"):
        card = data_of(open_page(step=step, lang=language))["card"]
        assert said in card["here"]["text"], step
    labels = {
        answer["label"]: answer["value"]
        for answer in data_of(open_page(step="roofline", lang="en"))["card"]["question"]["answers"]
    }
    # 100 GFLOP/s over 18 GB/s: a weight of four bytes takes twice the rows of one of two.
    assert labels["this machine's own ridge in fp32, in rows"] == pytest.approx(11.11, abs=0.01)
    assert labels["this machine's own ridge in bf16, in rows"] == pytest.approx(5.56, abs=0.01)


def test_no_text_of_the_path_types_a_number_for_this_machine() -> None:
    typed = re.compile(r"(this machine|small processor|a processor)[^.{]*\b(\d+|ten|six|a few) rows")
    for message, file, _line in messages():
        if file.startswith("pages/_lesson"):
            assert not typed.search(message if isinstance(message, str) else message[0]), file


def test_the_numbers_of_the_questions_are_the_engine_s(open_page: Open) -> None:
    asked = {
        step: data_of(open_page(step=step, lang="en"))["card"]["question"]["answers"][0]["value"]
        for step in ("first-guess", "where-it-fails", "roofline", "state-and-kv", "batch", "misconceptions")
    }
    expected = {
        "first-guess": "flops_only_rate",
        "where-it-fails": "weights_only_rate",
        "roofline": "compute_bound_from",
        "state-and-kv": "kv_equals_state",
        "batch": "rate_58",
        "misconceptions": "speed_a100_h100",
    }
    assert asked == {step: lesson.figure(name) for step, name in expected.items()}


def test_a_run_on_show_is_what_a_guess_is_measured_by(open_page: Open, kept_run: str) -> None:
    test = open_page(step="question", lang="en", run=kept_run)
    answers = data_of(test)["card"]["question"]["answers"]
    measured = [answer["value"] for answer in answers if answer["kind"] == "measured"]
    # 40 ms for four tokens, then 24, 25 and 30 ms: a median of 25 ms against 10 ms each.
    assert measured == [2.5]


@pytest.mark.parametrize(("busy", "notes"), [(0.0, ["measured", ""]), (1.5, ["measured", "measured, disturbed"])])
def test_a_disturbed_run_is_marked_where_its_number_stands(
    busy: float, notes: list[str], open_page: Open, home: Path
) -> None:
    probe = Probe(before_ns=1000, after_ns=1000, load=None, other_cores=busy)
    update = {"ceilings": made_up_ceilings().model_copy(update={"probe_ns": 1000}), "probe": probe}
    run = finished_run("busyRun00001").model_copy(update=update)
    broker.current().keep(run)
    card = data_of(open_page(step="question", lang="en", run=run.id))["card"]
    assert [card["question"]["answers"][0][name] for name in ("kind", "note")] == notes
    assert ("measurement was disturbed" in card["here"]["text"]) == (busy > 1)


def test_reading_is_held_against_the_ridge_of_the_machine_the_run_was_measured_on(
    open_page: Open, measured_here: None
) -> None:
    question = data_of(open_page(step="two-phases", lang="en"))["card"]["question"]
    shown = max(recorded.runs().values(), key=lambda run: run.created_at)
    assert shown.ceilings is not None
    assert shown.steps[0].tokens == 19
    assert "fewer than the ridge of its machine, 22.2 rows in fp32" in question["why"]  # 11.1 on this machine
    assert question["answers"][-1]["label"] == "the run on show, of another machine"


def test_a_run_of_four_tokens_is_not_said_to_have_read_more(open_page: Open, kept_run: str) -> None:
    question = data_of(open_page(step="two-phases", lang="en", run=kept_run))["card"]["question"]
    assert "took 1.60 times as long to read its 4 tokens" in question["why"]  # 40 ms against a median of 25


def test_the_question_about_a_belief_says_the_belief(open_page: Open) -> None:
    question = data_of(open_page(step="misconceptions", lang="en"))["card"]["question"]
    assert question["text"].startswith(BELIEFS[1].sentence)


def test_every_explanation_is_a_word_of_the_glossary() -> None:
    explained = {value for name, value in vars(terms).items() if name.isupper() and isinstance(value, str)}
    assert explained <= {term.text for term in TERMS.values()}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_word_of_the_glossary_is_there_in_each_language(language: str) -> None:
    t = Words(language)
    known = {message.id for message in catalogue("zh")}
    for term in TERMS.values():
        assert term.text in known
        assert not term.name or term.name in known
        assert t(term.text)
        if language == "zh":
            assert t(term.text) != term.text


def test_every_marked_term_exists_and_is_marked_in_each_language() -> None:
    zh = Words("zh")
    for message, file, _line in messages():
        text = message if isinstance(message, str) else message[0]
        marked = sorted(term for _, term in MARK.findall(text))
        assert set(marked) <= set(TERMS), file
        assert sorted(term for _, term in MARK.findall(zh(text))) == marked, text


def test_the_list_of_what_is_taught_names_every_step_and_only_steps_that_exist() -> None:
    rows = re.findall(r"^\| (.+) \|$", (ROOT / "docs/lesson.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {step for row in rows if row.count(" | ") == 3 for step in re.findall(r"`([\w-]+)`", row.split(" | ")[1])}
    assert named == set(BY_ID)
