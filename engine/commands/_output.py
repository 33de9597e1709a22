"""Printing for people and for programs: one JSON document, or aligned columns."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tqdm import tqdm

from engine.errors import Sentence

Progress = Callable[[Sentence, float | None], None]


def print_json(document: Any) -> None:
    """Exactly one JSON document on stdout."""
    json.dump(document, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")


def plain(text: str) -> str:
    """`text` on one line, control characters as escapes: what came from a file must not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Left-aligned columns, two spaces apart; a row may hold anything that prints."""
    table = [[plain(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


class ProgressBar:
    """Long work on stderr: a bar on a terminal where a fraction is known, else each sentence once."""

    def __init__(self) -> None:
        self._bar: tqdm[Any] | None = None
        self._said = ""

    def __call__(self, sentence: Sentence, fraction: float | None) -> None:
        text = str(sentence)
        with_bar = fraction is not None and sys.stderr.isatty()
        if text != self._said:
            self.close()
            self._said = text
            if not with_bar:
                print(text, file=sys.stderr, flush=True)
        if with_bar and fraction is not None:
            self._draw(text, round(100 * min(1.0, fraction)))

    def _draw(self, text: str, percent: int) -> None:
        if self._bar is None:
            self._bar = tqdm(total=100, desc=text, file=sys.stderr, bar_format="{desc} {percentage:3.0f}%|{bar}|")
        if percent != self._bar.n:
            self._bar.n = percent
            self._bar.refresh()

    def close(self) -> None:
        """End the line, so that what is printed next starts on its own."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
