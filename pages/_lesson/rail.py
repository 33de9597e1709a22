"""The path on top of whichever page is shown: which step the address asks for, its card, and the way to the next.

The card keeps the reader's guesses in the browser. The server learns nothing but which step is wanted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from engine import broker, lesson, lesson_measured
from engine.errors import LabError
from engine.experiment import Kind
from engine.experiment_record import AnyRecord
from engine.record import Run
from engine.shapes import ShapeRecord
from engine.sweeps import SweepRecord
from pages._lesson import glossary, questions, steps
from pages._lesson.steps import STEPS, Found, Step
from pages._parts import components, runs, session
from pages._parts.words import Words

SCRIPTS = ("kept.js", "rich.js", "guess.js", "card.js")
_path = components.component(
    "roofline_path", Path(__file__).parent / "card", "card.html", ("rich.css", "card.css"), SCRIPTS
)


def show(t: Words, page: str) -> None:
    """The card of the step that the address asks for, above its page; a step of another page is gone to."""
    found = _asked(page)
    if found is None:
        return
    if found.step.page != page:
        if "step" in st.query_params:
            _go(t, found.step, project=st.query_params.get("project") == "1")
        _mount(t, {"mode": "away", "current": found.step.id})
        return
    project = st.query_params.get("project") == "1"
    _mount(t, {"mode": "card", "current": found.step.id, "project": project, **_card(t, found)})


def overview(t: Words) -> None:
    """All steps, and where this browser was."""
    _mount(t, {"mode": "overview", "current": None})


def _asked(page: str) -> Found | None:
    """The address decides; after a switch between pages, which drops it, the session reminds it of its own page."""
    raw = st.query_params.get("step")
    if raw is not None:
        found = steps.find(raw)
        st.session_state["path_step"] = found.step.id
        if found.asked is not None:
            st.session_state["path_notice"] = found
        if raw != found.step.id:
            st.query_params["step"] = found.step.id
        said: Found | None = st.session_state.get("path_notice")
        return said if said is not None and said.step == found.step else found
    kept = st.session_state.get("path_step")
    if kept is None:
        return None
    step = steps.BY_ID[kept]
    if step.page == page:
        st.query_params["step"] = step.id
    return Found(step)


def _go(t: Words, step: Step, *, project: bool = False) -> None:
    """To a step's page, with its settings."""
    st.session_state["path_step"] = step.id
    query = steps.query(step, t.language) | ({"project": "1"} if project else {})
    st.switch_page(f"{step.page or 'live_run'}.py", query_params=query)


def _mount(t: Words, data: dict[str, Any]) -> None:
    told = _path(
        key="path",
        data={"project": False, "locale": t.language, "words": _words(t), "steps": _steps(t), **data},
        on_go_change=lambda: None,
    )
    wanted = told.get("go")
    if wanted == "leave":
        st.session_state["path_step"] = None
        st.query_params.pop("step", None)
        st.query_params.pop("project", None)
        st.rerun()
    if wanted in steps.BY_ID:
        st.session_state["path_notice"] = None
        _go(t, steps.BY_ID[wanted])


def _steps(t: Words) -> list[dict[str, str]]:
    base = session.base_path()
    return [
        {
            "id": step.id,
            "title": t(step.title),
            "time": t("about {minutes} min", minutes=step.minutes),
            "href": f"{base}/{step.page}?{urlencode(steps.query(step, t.language))}",
        }
        for step in STEPS
    ]


def _card(t: Words, found: Found) -> dict[str, Any]:
    step = found.step
    filled = {name: t.number(lesson.figure(name), digits) for name, digits in step.figures.items()}
    said = {"idea": t(step.idea, **filled), "do": t(step.do), "see": t(step.see, **filled)}
    question = questions.ask(t, step.id, _known(step.id))
    terms = glossary.mentioned(t, *said.values(), question["text"], question["why"])
    notice = None
    if found.asked is not None:
        notice = t("The path has no step {asked}; this is the nearest one.", asked=found.asked)
    return {"card": {**said, "question": question, "terms": terms}, "notice": notice}


def _known(step: str) -> questions.Known:
    """The run on show once it has ended; this machine's ceilings; the experiments that a step asks about."""
    return questions.Known(
        _run_on_show(),
        broker.current().machine().ceilings,
        _newest_shape() if step == "one-matrix" else None,
        _newest_batch() if step == "batch" else None,
    )


def _run_on_show() -> Run | None:
    """The run of the address once it has ended, else the one that ships where the address has none."""
    run_id = st.session_state.get("run_id")
    if run_id is None:
        return runs.shipped()
    try:
        run = runs.find(run_id)
    except LabError:  # the page says so itself
        return None
    return run if isinstance(run, Run) else None


def _newest_shape() -> lesson_measured.MatrixRatio | None:
    found = _newest("shape", None)
    return lesson_measured.shape_ratio(found) if isinstance(found, ShapeRecord) else None


def _newest_batch() -> lesson_measured.BatchGain | None:
    found = _newest("sweep", "batch")
    return lesson_measured.batch_gain(found) if isinstance(found, SweepRecord) else None


def _newest(kind: Kind, what: str | None) -> AnyRecord | None:
    """The newest experiment of a kind that was measured here to its end."""
    experiments = broker.current().experiments
    try:
        rows = [row for row in experiments.newest(kind, 20) if row.state == "done" and not row.imported]
        found = next((row for row in rows if what is None or row.what == what), None)
        return None if found is None else experiments.record(found.id)
    except LabError:  # a store that cannot be read is said elsewhere
        return None


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
        "away": t("You are on the path, off its page. Back to:"),
        "go_on": t("Go on with:"),
        "begin": t("Begin"),
        "forget": t("Forget what this browser remembers"),
    }
