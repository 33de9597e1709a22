"""What a question of the path is made of: plain data for the card. No Streamlit here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pages._lesson import doubts
from pages._parts.doubts import Doubt
from pages._parts.words import Words


@dataclass(frozen=True)
class Answer:
    """One thing to hold a guess against. value places it on the scale, where the question has one.

    note: what kind of number it is, where there is more to say of it than `kind`.
    """

    kind: Literal["predicted", "measured"]
    label: str
    shown: str
    value: float | None = None
    note: str = ""


def predicted(t: Words, label: str, value: float, doubt: Doubt | None = None) -> Answer:
    """A number the lab predicts; doubt: of the measurements it rests on."""
    return Answer("predicted", label, t.number(value), value, doubts.note(t, "predicted", doubt))


def measured(t: Words, label: str, value: float, doubt: Doubt | None = None) -> Answer:
    """A number a clock gave, and whether it can be trusted."""
    return Answer("measured", label, t.number(value), value, doubts.note(t, "measured", doubt))


def number(text: str, unit: str, ends: tuple[float, float], answers: Sequence[Answer], why: str) -> dict[str, Any]:
    """A question for a number, guessed on a logarithmic scale between two ends; the first answer is the lab's."""
    low, high = ends
    return {"kind": "number", "text": text, "unit": unit, "low": low, "high": high, "why": why, **_answers(answers)}


def choice(
    text: str, choices: Mapping[str, str], right: Sequence[str], answers: Sequence[Answer], why: str
) -> dict[str, Any]:
    """A question with choices, of which more than one may be right."""
    options = [{"id": name, "text": said} for name, said in choices.items()]
    return {"kind": "choice", "text": text, "choices": options, "right": list(right), "why": why, **_answers(answers)}


def _answers(answers: Sequence[Answer]) -> dict[str, Any]:
    return {"answers": [asdict(answer) for answer in answers]}
