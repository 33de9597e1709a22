"""Every message in the source, and what a catalogue lacks of them.

`python -m pages._words.extract` adds new messages to each catalogue, untranslated, and drops those the
source no longer has; a test fails while one is untranslated.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_file
from babel.messages.pofile import read_po, write_po

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# Who takes a message, and in which of its arguments: t("..."), t.plural("one", "many", n), N_("..."), LabError("...").
KEYWORDS: dict[str, Any] = {"t": None, "words": None, "plural": (1, 2), "N_": None, "LabError": None}


def messages() -> Iterator[tuple[Any, str, int]]:
    """(message or plural pair, file, line) of everything that can be said to a reader."""
    for folder in ("pages", "engine"):  # the command line speaks English
        for file in sorted((ROOT / folder).rglob("*.py")):
            if "commands" in file.parts:
                continue
            for line, message, _comments, _context in extract_from_file("python", file, keywords=KEYWORDS):
                if message and message != "":
                    yield message, file.relative_to(ROOT).as_posix(), line


def catalogue(language: str) -> Catalog:
    """The catalogue of one language as kept."""
    with (HERE / f"{language}.po").open("rb") as file:
        return read_po(file, locale=language)


def template() -> Catalog:
    """A catalogue of every message, untranslated."""
    found = Catalog(project="Roofline Lab", charset="utf-8")
    for message, file, _line in messages():
        found.add(message, locations=[(file, 0)])
    return found


def update(language: str) -> Catalog:
    """The kept catalogue brought up to the source, translations kept where the message is the same."""
    kept = catalogue(language)
    kept.update(template(), no_fuzzy_matching=True)
    kept.obsolete.clear()
    return kept


if __name__ == "__main__":
    for path in sorted(HERE.glob("*.po")):
        renewed = update(path.stem)
        with path.open("wb") as output:
            write_po(output, renewed, width=110, sort_output=False, include_lineno=False, omit_header=False)
        untranslated = sum(not message.string or not all(message.string) for message in renewed if message.id)
        print(f"{path.name}: {untranslated} untranslated")
