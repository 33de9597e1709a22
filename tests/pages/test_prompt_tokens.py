"""What a model makes of the prompt: a character without a token of its own is explained where it is shown."""

from __future__ import annotations

from collections.abc import Callable

from streamlit.testing.v1 import AppTest

from engine import checkpoint, lesson, tokenizer

Open = Callable[..., AppTest]


def captions(test: AppTest) -> str:
    return "\n".join(str(each.value) for each in test.caption)


def test_byte_pieces_are_explained_with_their_numbers(open_page: Open) -> None:
    test = open_page(lang="zh")
    words = tokenizer.load(checkpoint.resolve("smollm2-135m", allow_paths=False))
    tokens = len(words.encode(lesson.SENTENCE))
    assert any("‹" in piece for piece in words.pieces(words.encode(lesson.SENTENCE)))
    assert test.text_area(key="prompt").value == lesson.SENTENCE
    assert f"{len(lesson.SENTENCE)} 个字符是 21 个字节，在它看来是 {tokens} 个 token" in captions(test)
    assert f"只要 {lesson.PROMPT} 个" in captions(test)


def test_a_text_of_whole_characters_needs_no_such_words(open_page: Open) -> None:
    assert "‹" not in captions(open_page(lang="en"))
