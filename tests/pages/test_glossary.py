"""Words: no term without a name, no short label of a chart or table that is neither explained nor plain English."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from reading import said
from streamlit.testing.v1 import AppTest

from pages._lesson.glossary import TERMS
from pages._parts.words import Words

Open = Callable[..., AppTest]
PAGES = Path(__file__).parents[2] / "pages"
# Labels that mean what they say to whoever reads English, or name something that stands beside them.
PLAIN = {
    "a token", "against", "another machine", "as much", "as published", "at best", "both equal", "condition", "device",
    "does not fit", "fits", "half the prompt", "here", "in all", "linear", "logarithmic", "model", "multiplying",
    "needs more rows",
    "not measured yet", "of", "of it bytes", "one compiled function", "operation by operation", "peak of", "published",
    "rate", "read", "recorded", "run", "share", "slower part", "solved", "source", "starting an operation",
    "stuck at", "text", "that machine",
    "the lesson's", "the rest", "the run", "the same", "the two cards", "this engine's", "this machine", "time",
    "unsure", "usual mistake", "what it replaces", "written",
}  # fmt: skip


def labels() -> set[str]:
    """Every short text that begins small, as the names in charts, tables and switches do; units left out."""
    found = set()
    files = [
        *PAGES.glob("*.py"),
        *(PAGES / "_parts").glob("*.py"),
        PAGES / "_lesson/replay_data.py",
        PAGES / "_lesson/small_model.py",
    ]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("t", "N_")):
                continue
            text = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            if isinstance(text, str) and re.fullmatch(r"[a-z][^{}.:]*", text) and len(text.split()) <= 3:
                found.add(text.split(",")[0].lower())
    return found


def test_each_short_label_is_a_word_of_the_glossary_or_plain() -> None:
    written = {name.lower() for term in TERMS.values() for name in (term.name, *term.also)}
    explained = written | {name.split(",")[0] for name in written}
    assert labels() - explained - PLAIN == set()
    assert PLAIN & explained == set()  # whatever is explained need not be called plain


def test_each_term_has_a_name_of_its_own() -> None:
    names = [term.name for term in TERMS.values()]
    assert all(names)
    assert len(set(names)) == len(names)


def test_other_names_are_messages_too() -> None:
    zh = Words("zh")
    assert all(zh(name) for term in TERMS.values() for name in term.also)


@pytest.mark.parametrize("wanted", ["disturbed", "row", "context", "hybrid", "byte piece", "drafts", "ridge"])
def test_a_word_is_found_by_any_way_it_is_written(wanted: str, open_page: Open) -> None:
    shown = said(open_page("glossary.py", lang="en", term=wanted))
    assert "No term of the lab" not in shown
    assert shown.count("- **") >= 1


@pytest.mark.parametrize(("language", "here", "there"), [("en", "11.1 rows in fp32", "295 rows in bf16"),
                                                         ("zh", "fp32 为 11.1 行", "bf16 为 295 行")])  # fmt: skip
def test_the_ridge_says_whose_and_in_which_format(
    language: str, here: str, there: str, open_page: Open, measured_here: None
) -> None:
    shown = said(open_page("glossary.py", lang=language, term="ridge"))
    assert here in shown
    assert there in shown


def test_what_is_moved_and_what_is_held_have_names_of_their_own(open_page: Open) -> None:
    shown = "\n".join(str(each.value) for each in open_page("glossary.py", lang="en").get("text"))
    assert "W + B × (KV moved + state moved + logits)" in shown
    assert "(M − C) / (KV held + state held)" in shown
