"""What a question of the path is made of: plain data for the card. No Streamlit here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pages._parts.words import Words


@dataclass(frozen=True)
class Answer:
    """One thing to hold a guess against. value places it on the scale, where the question has one."""

    kind: Literal["predicted", "measured"]
    label: str
    shown: str
    value: float | None = None


def predicted(t: Words, label: str, value: float) -> Answer:
    """A number the lab predicts."""
    return Answer("predicted", label, t.number(value), value)


def measured(t: Words, label: str, value: float) -> Answer:
    """A number a clock gave."""
    return Answer("measured", label, t.number(value), value)


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
