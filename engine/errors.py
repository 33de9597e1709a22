"""Sentences the lab says to its reader, and the one exception that carries one.

A sentence is kept as an English template plus its parameters, so that a page can say it in the
reader's language (the template is the gettext message id) and the command line in English. Mark a
bare template with `N_` so that the extraction of messages finds it.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

Scalar = str | int | float | bool | None


def N_(template: str) -> str:  # noqa: N802 - gettext's own name for "translate this later"
    """Return `template` unchanged; marks it for message extraction."""
    return template


class Sentence(BaseModel):
    """One sentence for the reader: `template.format(**params)`."""

    model_config = ConfigDict(frozen=True)

    template: str
    params: dict[str, Scalar] = {}

    def __str__(self) -> str:
        return self.template.format(**self.params)


class LabError(Exception):
    """Something the reader can understand and act on: what was wrong and what would be right.

    Everything else that escapes is a defect of ours. The command line prints `str(error)` and exits
    with 1; a page shows `error.sentence` in its own language.
    """

    def __init__(self, template: str, **params: Scalar) -> None:
        self.sentence = Sentence(template=template, params=params)
        super().__init__(str(self.sentence))

    @classmethod
    def from_sentence(cls, sentence: Sentence) -> LabError:
        """Rebuild an error that crossed a process border as its sentence."""
        return cls(sentence.template, **sentence.params)

    def to_json(self) -> dict[str, Any]:
        """The sentence as plain data, for the worker's JSON lines."""
        return self.sentence.model_dump()
