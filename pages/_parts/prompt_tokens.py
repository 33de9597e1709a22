"""The prompt as the chosen model reads it, beside the vocabulary of the lesson's model: chips with ids."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from engine import checkpoint, tokenizer
from engine.errors import LabError
from pages._parts import components
from pages._parts.choices import choices
from pages._parts.links import View
from pages._parts.plain import plain
from pages._parts.summary import chip_row
from pages._parts.words import Words

MAX_CHARACTERS = 4_000


def show(t: Words, view: View) -> None:
    """Both splits of the prompt in the text area; what cannot be split says why."""
    prompt = st.session_state["prompt"][:MAX_CHARACTERS]
    try:
        prompt.encode()
    except UnicodeEncodeError:
        return  # half a character; pressing Run says where
    if not prompt.strip():
        return
    rows: list[dict[str, object]] = []
    ids: list[int] = []
    in_bytes, own = False, 0
    try:
        pieces, ids = _split(view.model, view.chat, prompt)
        title = t.plural("{count} token for this model", "{count} tokens for this model", len(ids))
        rows.append(chip_row(t, title, pieces, ids))
        in_bytes = any("‹" in piece for piece in pieces)
        own = len(_split(view.model, False, prompt)[1])  # without what a chat template adds
        pieces, ids = _split_by_qwen(prompt)
        title = t.plural(
            "{count} token for Qwen3.8, for comparison", "{count} tokens for Qwen3.8, for comparison", len(ids)
        )
        rows.append(chip_row(t, title, pieces, ids))
    except LabError as error:
        missing = not choices()[view.model].fetched
        st.caption(t(
            "The prompt's tokens are shown here once the model is fetched; the first run brings it.") if missing
                   else plain(t.sentence(error.sentence)))  # fmt: skip
    if rows:
        components.chips(rows, key="prompt_chips")
    if in_bytes:
        st.caption(_byte_pieces(t, prompt, own, len(ids)))


def _byte_pieces(t: Words, prompt: str, own: int, by_qwen: int) -> str:
    """What ‹E5 B0› means, and why a short Chinese text may take so many tokens."""
    said = t(
        "What stands between ‹ and › are bytes: this model's vocabulary has no token for such a character, so it reads "
        "the character in pieces. These {characters} characters are {bytes} bytes and {tokens} tokens for it.",
        characters=t.number(len(prompt)),
        bytes=t.number(len(prompt.encode())),
        tokens=t.number(own),
    )
    more = t("A vocabulary made from much text of this language needs {count}.", count=t.number(by_qwen))
    return t.paragraph([said, more if by_qwen < own else ""])


@lru_cache(maxsize=256)
def _split(model: str, chat: bool, prompt: str) -> tuple[list[str], list[int]]:
    words = tokenizer.load(checkpoint.resolve(model, allow_paths=False))
    _rendered, ids = words.encode_prompt(prompt, chat=chat)
    return words.pieces(ids), ids


@lru_cache(maxsize=256)
def _split_by_qwen(prompt: str) -> tuple[list[str], list[int]]:
    words = tokenizer.qwen()
    ids = words.encode(prompt)
    return words.pieces(ids), ids
