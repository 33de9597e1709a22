"""The path on top of whichever page is shown: which step the address asks for, its card, and the way to the next.

The card keeps the reader's guesses in the browser. The server learns nothing but which step is wanted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from engine import lesson
from pages._lesson import addresses, glossary, questions, recap
from pages._lesson.addresses import Found
from pages._lesson.here import here
from pages._lesson.known import known
from pages._lesson.steps import BY_ID, DONE, STEPS, Step
from pages._parts import components, session
from pages._parts.words import Words

SCRIPTS = ("kept.js", "rich.js", "guess.js", "recap.js", "card.js")
_path = components.component(
    "roofline_path", Path(__file__).parent / "card", "card.html", ("rich.css", "card.css"), SCRIPTS
)


def show(t: Words, page: str) -> None:
    """The card of the step that the address asks for, above its page; a step of another page is gone to."""
    found = _asked(page)
    if found is None:
        return
    if found.step.page != page and "step" in st.query_params:
        _go(t, found.step, project=st.query_params.get("project") == "1")
    if page == DONE.page:  # it shows all of the path, or its end, itself
        return
    if found.step.page != page:
        _mount(t, {"mode": "away", "current": found.step.id})
        return
    project = st.query_params.get("project") == "1"
    _mount(t, {"mode": "card", "current": found.step.id, "project": project, **_card(t, found)})


def overview(t: Words) -> None:
    """All steps, and where this browser was."""
    _mount(t, {"mode": "overview", "current": None})


def at_the_end() -> bool:
    """Whether the address asks for the end of the path."""
    return addresses.find(st.query_params.get("step", "")).step is DONE


def end(t: Words) -> None:
    """Every question with the reader's guess and what was found, and where to go on."""
    project = st.query_params.get("project") == "1"
    _mount(t, {"mode": "end", "current": DONE.id, "project": project, **recap.recap(t)})


def _asked(page: str) -> Found | None:
    """The address decides; after a switch between pages, which drops it, the session reminds it of its own page."""
    raw = st.query_params.get("step")
    if raw is not None:
        found = addresses.find(raw)
        st.session_state["path_step"] = None if found.step is DONE else found.step.id  # who is done has left the path
        if found.asked is not None:
            st.session_state["path_notice"] = found
        if raw != found.step.id:
            st.query_params["step"] = found.step.id
        said: Found | None = st.session_state.get("path_notice")
        return said if said is not None and said.step == found.step else found
    kept = st.session_state.get("path_step")
    if kept is None:
        return None
    step = BY_ID[kept]
    if step.page == page:
        st.query_params["step"] = step.id
    return Found(step)


def _go(t: Words, step: Step, *, project: bool = False) -> None:
    """To a step's page, with its settings."""
    st.session_state["path_step"] = step.id
    query = addresses.query(step, t.language) | ({"project": "1"} if project else {})
    st.switch_page(f"{step.page or 'live_run'}.py", query_params=query)


def _mount(t: Words, data: dict[str, Any]) -> None:
    told = _path(
        key="path",
        data={
            "project": False,
            "locale": t.language,
            "words": _words(t),
            "steps": [_listed(t, step) for step in STEPS],
            "end": _listed(t, DONE),
            **data,
        },
        on_go_change=lambda: None,
    )
    wanted = told.get("go")
    if wanted == "leave":
        st.session_state["path_step"] = None
        st.query_params.pop("step", None)
        st.query_params.pop("project", None)
        st.rerun()
    if wanted in BY_ID:
        st.session_state["path_notice"] = None
        _go(t, BY_ID[wanted])


def _listed(t: Words, step: Step) -> dict[str, str]:
    return {
        "id": step.id,
        "title": t(step.title),
        "time": t("about {minutes} min", minutes=step.minutes),
        "href": f"{session.base_path()}/{step.page}?{urlencode(addresses.query(step, t.language))}",
    }


def _card(t: Words, found: Found) -> dict[str, Any]:
    step = found.step
    filled = {name: t.number(lesson.figure(name), digits) for name, digits in step.figures.items()}
    said = {"idea": t(step.idea, **filled), "do": t(step.do), "see": t(step.see, **filled)}
    found_here = known(step.id)
    question = questions.ask(t, step.id, found_here)
    terms = glossary.mentioned(t, *said.values(), question["text"], question["why"])
    notice = None
    if found.asked is not None:
        notice = t("The path has no step {asked}; this is the nearest one.", asked=found.asked)
    card = {**said, "question": question, "terms": terms, "here": here(t, step.id, found_here)}
    return {"card": card, "notice": notice}


def _words(t: Words) -> dict[str, str]:
    return {
        "path": t("The path"),
        "count": t("Step {number} of {of}"),
        "done": t("done"),
        "project": t("Project"),
        "leave": t("Leave the path"),
        "first_you": t("First your own guess"),
        "your_guess": t("Your guess"),
        "not_yet": t("not chosen yet"),
        "lock": t("Lock it in"),
        "skip": t("Skip the question"),
        "stays_here": t("What you guess stays in this browser."),
        "answer": t("The answer"),
        "spot_on": t("spot on"),
        "too_high": t("{factor} times too high"),
        "too_low": t("{factor} times too low"),
        "right": t("right"),
        "not_right": t("not so"),
        "true_one": t("True"),
        "predicted": t("predicted"),
        "measured": t("measured"),
        "again": t("Guess again"),
        "to_do": t("Do"),
        "to_see": t("See"),
        "to_know": t("Here"),
        "open_run": t("Open this run"),
        "away": t("You are on the path, off its page. Back to:"),
        "go_on": t("Go on with:"),
        "begin": t("Begin"),
        "forget": t("Forget what this browser remembers"),
        "step": t("Step"),
        "print": t("Print"),
        "close": t("{close} of {given} guesses were right, or within a factor of two."),
        "no_guess": t("no guess yet"),
        "not_measured": t("not measured here"),
        "onward": t("Where to go on"),
    }
