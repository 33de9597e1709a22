"""The end of the path: every question with its answers and what it taught, and where to go on. Plain data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine import lesson
from pages._lesson import questions
from pages._lesson.known import known, newest_run
from pages._lesson.learned import LEARNED, ONWARD
from pages._lesson.small_model import SMALL
from pages._lesson.steps import STEPS
from pages._parts import session
from pages._parts.links import build_link
from pages._parts.words import Words


def recap(t: Words) -> dict[str, Any]:
    """What the card's browser side joins with the guesses it remembers."""
    found = known(*(step.id for step in STEPS))
    if found.run is not None and found.run.request.model == SMALL:  # the last step's, which waits for something else
        found = replace(found, run=newest_run(other_than=SMALL))
    return {
        "asked": [
            {"id": step.id, "learned": learned(t, step.id), "question": questions.ask(t, step.id, found)}
            for step in STEPS
        ],
        "onward": [
            {
                "href": build_link(session.base_path(), page=page, language=t.language),
                "title": t(title),
                "text": t(text),
            }
            for page, title, text in ONWARD
        ],
    }


def learned(t: Words, step: str) -> str:
    """One step's sentence, filled with its figures."""
    text, figures = LEARNED[step]
    prompt, output = lesson.PAPER
    filled = {name: t.number(lesson.figure(name), digits) for name, digits in figures.items()}
    return t(text, prompt=t.number(prompt), output=t.number(output), **filled)
