"""Every sentence in both languages, the same parameters in each, and numbers as people write them."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.errors import LabError, Sentence
from pages._parts.plain import plain
from pages._parts.words import LANGUAGES, Words
from pages._words.extract import ROOT, catalogue, messages

EN, ZH = Words("en"), Words("zh")


def _parameters(text: str) -> set[str]:
    return set(re.findall(r"{(\w+)[^{}]*}", text))


def test_the_source_has_messages_of_pages_and_engine() -> None:
    files = {file for _, file, _ in messages()}
    assert {"pages/live_run.py", "engine/request.py", "engine/verdict.py"} <= files


def test_no_message_hides_where_the_extraction_does_not_look() -> None:
    """Inside an f-string, for one: Python 3.11 reads that as a single string."""
    found = {text for message, _, _ in messages() for text in (message if isinstance(message, tuple) else (message,))}
    hidden = []
    for file in sorted((ROOT / "pages").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("t", "N_"):
                said = node.args[0] if node.args else None
                if isinstance(said, ast.Constant) and said.value not in found:
                    hidden.append((file.name, node.lineno, said.value))
    assert not hidden


@pytest.mark.parametrize("language", [language for language in LANGUAGES if language != "en"])
def test_no_message_is_untranslated(language: str) -> None:
    kept = {
        message.id if isinstance(message.id, str) else tuple(message.id): message for message in catalogue(language)
    }
    missing = []
    for message, file, line in messages():
        key = message if isinstance(message, str) else tuple(message)
        said = kept[key].string if key in kept else ""
        if not all(said if isinstance(said, tuple | list) else [said]) or not said:
            missing.append(f"{file}:{line}: {key}")
    assert not missing, "\n".join(missing)


def test_translations_have_the_parameters_of_their_message() -> None:
    wrong = []
    for message in catalogue("zh"):
        if not message.id or not message.string or not all(message.string):
            continue
        originals = [message.id] if isinstance(message.id, str) else list(message.id)
        said = [message.string] if isinstance(message.string, str) else list(message.string)
        if _parameters(originals[-1]) != _parameters(said[0]):
            wrong.append(originals[-1])
        if said[0] == originals[-1] and re.search(r"[a-z]{3,} [a-z]{2,}", originals[-1]):
            wrong.append(f"not translated: {originals[-1]}")
    assert not wrong, "\n".join(wrong)


def test_an_engine_error_is_said_in_the_readers_language() -> None:
    error = LabError("{what} is {value}; it has to be a whole number from {low} to {high}.",
                     what="The batch", value=0, low=1, high=64)  # fmt: skip
    assert EN.sentence(error.sentence) == str(error)
    assert ZH.sentence(error.sentence) == "批大小是 0；要是 1 到 64 的整数。"


def test_a_template_that_cannot_be_filled_is_shown_as_it_is() -> None:
    assert EN.sentence(Sentence(template="{missing} is there.")) == "{missing} is there."


@pytest.mark.parametrize("template", ["{0} is wrong.", "{unclosed", "{a.b}", "{a[0]}", "{a:>99999999}", "{a!r}"])
def test_a_template_that_would_do_more_than_fill_blanks_is_refused(template: str) -> None:
    with pytest.raises(ValidationError):
        Sentence(template=template, params={"a": "x"})


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (EN.number(1234567), "1,234,567"),
        (EN.number(31.24), "31.2"),
        (EN.number(0.0512, 3), "0.051"),
        (EN.size(538_000_000), "538 MB"),
        (EN.size(51.25e9), "51.2 GB"),
        (EN.size(12), "12 B"),
        (EN.binary_size(300 * 2**20), "300 MiB"),
        (EN.duration(31_240_000), "31.2 ms"),
        (EN.duration(950), "950 ns"),
        (EN.bandwidth(18.2e9), "18.2 GB/s"),
        (EN.rate(989.5e12), "990 TFLOP/s"),
        (EN.percent(0.0034), "0.34 %"),
        (EN.many(134_515_008), "135 million"),
        (ZH.many(134_515_008), "1.35 亿"),
        (EN.many(3_673_600), "3.67 million"),
        (ZH.many(3_673_600), "367 万"),
        (EN.many(25_623_939_584), "25.6 billion"),
        (ZH.many(25_623_939_584), "256 亿"),
        (ZH.plural("{count} thread", "{count} threads", 2), "2 个线程"),
        (EN.plural("{count} thread", "{count} threads", 1), "1 thread"),
        (EN.moment("2026-11-29T22:54:35+00:00"), "Nov 29, 2026, 10:54:35\u202fPM UTC"),
        (ZH.moment("2026-11-29T22:54:35+00:00"), "2026年11月29日 22:54:35 UTC"),
        (EN.moment("not a moment"), "not a moment"),
    ],
)
def test_numbers_read_as_people_write_them(shown: str, expected: str) -> None:
    assert shown == expected


@given(st.text())
def test_no_text_has_a_meaning_in_markdown(text: str) -> None:
    shown = plain(text)
    for at, character in enumerate(shown):
        if character in "*_`[]<>$:!#":
            assert shown[at - 1] == "\\"
    assert "\n" not in shown
