"""Sentences the lab says to its reader, and the one exception that carries one.

A sentence is kept as an English template plus its parameters, so that a page can say it in the
reader's language (the template is the gettext message id) and the command line in English. Mark a
bare template with `N_` so that the extraction of messages finds it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from string import Formatter
from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator

Scalar = str | int | float | bool | None

_SHORT_FORM = re.compile(r",?(\.\d)?[gf%]?")
"""How a sentence may have a number written: none of them can make it long."""


def N_(template: str) -> str:  # noqa: N802 - gettext's own name for "translate this later"
    """Return `template` unchanged; marks it for message extraction."""
    return template


class Sentence(BaseModel):
    """One sentence for the reader: `template.format(**params)`.

    Its blanks are plain names. A record from a file may bring a template of its own, and `{x:>9999999999}` or
    `{x.__class__}` would do more than fill a blank.
    """

    model_config = ConfigDict(frozen=True)

    template: str
    params: dict[str, Scalar] = {}

    @field_validator("template")
    @classmethod
    def _fills_only_blanks(cls, template: str) -> str:
        if not _has_plain_blanks(template):
            raise ValueError("a sentence's blanks have to be plain names in braces")
        return template

    def __str__(self) -> str:
        return self.template.format(**self.params)


@lru_cache(maxsize=4096)
def _has_plain_blanks(template: str) -> bool:
    for _, name, width, conversion in Formatter().parse(template):
        if name is not None and (not name.isidentifier() or conversion or not _SHORT_FORM.fullmatch(width or "")):
            return False
    return True


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
