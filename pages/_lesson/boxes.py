"""The way of a request through the server: seven boxes, what each does, what of it this step shows, and the real
amounts of the lesson's model. Templates; the drawing fills in the step's own numbers."""

from __future__ import annotations

from typing import Any

from engine import catalogue, lesson
from engine.errors import N_
from pages._parts.words import Words

# id -> title, what it does, what a prefill step says of it, what a decode step says of it. None: not part of the step.
# {rows}, {context}, {entries}, {weights}, {kv_read}, {kv_write}, {logits}, {token}, {time} are the step's.
BOXES: tuple[tuple[str, str, str, str | None, str | None], ...] = (
    (
        "tokenize",
        N_("Tokenize"),
        N_("The text is cut into tokens, each a number of the vocabulary. This happens once, before the model runs."),
        N_("The prompt of this run has become {rows} tokens."),
        None,
    ),
    (
        "prefill",
        N_("Rows go in"),
        N_("The tokens of a pass become the rows of a matrix. Prefill sends all of the prompt, decode a single row."),
        N_("{rows} rows go in at once."),
        N_("One row goes in: the token written last."),
    ),
    (
        "weights",
        N_("Read the weights"),
        N_("Every matrix of the model is brought from memory, once for the pass, however many rows it meets."),
        N_("{weights} are read, for {rows} rows together."),
        N_("{weights} are read, for one row."),
    ),
    (
        "cache",
        N_("KV cache"),
        N_("Attention looks back at what was kept of every earlier token, and adds what is kept of the new ones."),
        N_("Nothing to look back at yet; {rows} entries are written, {kv_write}."),
        N_("{kv_read} of earlier tokens are read; one entry is added, {kv_write}."),
    ),
    (
        "logits",
        N_("Scores"),
        N_("The last row is multiplied with the head: one score for each token of the vocabulary."),
        N_("{logits} of scores: those of the first new token are already here."),
        N_("{logits} of scores for the next token."),
    ),
    (
        "pick",
        N_("Pick"),
        N_("One token is picked from the scores: the likeliest, or by chance according to the settings."),
        N_("Picked: {token}"),
        N_("Picked: {token}"),
    ),
    (
        "append",
        N_("Append"),
        N_("The token is shown and goes in as the next row, until the end token comes or the length is reached."),
        N_("The first new token is out after {time}: the time to first token."),
        N_("One more token is out, after {time}."),
    ),
)

CODE: tuple[tuple[str, str], ...] = (
    ("prefill", N_("cache = empty")),
    ("prefill", N_("scores = model(all prompt tokens, cache)    # prefill: many rows, the weights once")),
    ("both", N_("repeat:")),
    ("both", N_("    token = pick(scores)")),
    ("both", N_("    write(token)")),
    ("both", N_("    stop if token is the end, or the length is reached")),
    ("decode", N_("    scores = model(token, cache)            # decode: one row, the weights again")),
)


def boxes(t: Words) -> list[dict[str, Any]]:
    """The boxes in the reader's language, each with the lesson's model beside it."""
    anchor = _anchor(t)
    return [
        {
            "id": name,
            "title": t(title),
            "about": t(about),
            "prefill": t(reading) if reading else None,
            "decode": t(writing) if writing else None,
            "anchor": anchor[name],
        }
        for name, title, about, reading, writing in BOXES
    ]


def code(t: Words) -> list[dict[str, str]]:
    """The program in a few lines, each with the phase it belongs to."""
    return [{"phase": phase, "text": t(line)} for phase, line in CODE]


def _anchor(t: Words) -> dict[str, str]:
    """The real amounts of the lesson's model on the lesson's card, box by box."""
    spec = catalogue.load(lesson.ANCHOR)
    first, then = lesson.case(prompt_tokens=lesson.PROMPT)["prefill"], lesson.case(context=lesson.PROMPT)["decode"]
    said = {
        "tokens": t.number(lesson.PROMPT),
        "sentence": lesson.SENTENCE,
        "vocabulary": t.number(spec.vocab_size),
        "weights": f"{t.number(lesson.figure('weight_gb'), 2)} GB",
        "kv": t.binary_size(lesson.kv_bytes_per_token()),
        "state": t.size(then["bytes"]["state_read"]),
        "scores": t.size(spec.vocab_size * 4),
        "first": t.number(lesson.figure("prefill_4_ms"), 2),
        "then": t.number(lesson.figure("decode_after_4_ms"), 2),
        "written": t.binary_size(first["bytes"]["kv_write"]),
    }
    return {
        "tokenize": t("{sentence} becomes {tokens} of {vocabulary} tokens.", **said),
        "prefill": t("{tokens} rows in prefill, then one at a time.", **said),
        "weights": t("{weights} in every pass, be it for {tokens} rows or for one.", **said),
        "cache": t(
            "{kv} for each token in 16 layers; a state of {state} in the other 48, whatever the length.", **said
        ),
        "logits": t("{vocabulary} scores, {scores}.", **said),
        "pick": t("One of {vocabulary}.", **said),
        "append": t("At best {first} ms until the first token, {then} ms for each further one.", **said),
    }
