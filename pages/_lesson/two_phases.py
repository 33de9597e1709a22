"""The question of the step *Two phases*, held against a run whose prompt may be longer than the question's four tokens.

Where it is, the answer says why: by the ridge of the machine that the run was measured on, not of this one.
"""

from __future__ import annotations

from typing import Any

from engine import lesson, ridge
from engine.request import DTYPES
from pages._lesson import doubts
from pages._lesson.answers import Answer, choice
from pages._lesson.known import Known
from pages._parts import ridge_words, runs
from pages._parts.words import Words

LONGER = 1.25
"""From which ratio of reading to writing a run no longer shows that both take about as long."""
EXPLAINED = 1.5
"""Up to how many times what the ridge says of it a reading may take, to be explained by the ridge alone."""


def ask(t: Words, known: Known) -> dict[str, Any]:
    """The question of the step as the card shows it."""
    first, then = lesson.figure("prefill_4_ms"), lesson.figure("decode_after_4_ms")
    answers = [
        Answer(
            "predicted",
            t("an H100, predicted: four read, one written after them"),
            t("{first} ms and {then} ms", first=t.number(first, 2), then=t.number(then, 2)),
        )
    ]
    phases = known.phases
    if phases is not None:
        shown = t(
            "{tokens} tokens read in {first}, one written in {then}",
            tokens=t.number(phases.prompt_tokens),
            first=t.duration(phases.prefill_ns),
            then=t.duration(phases.decode_ns),
        )
        is_elsewhere = known.run is not None and runs.elsewhere(known.run)
        label = t("the run on show, of another machine") if is_elsewhere else t("the run on show")
        answers.append(Answer("measured", label, shown, note=doubts.note(t, "measured", doubts.of_run(known.run))))
    return choice(
        t("Reading a prompt of four tokens, against writing one token: how long does the reading take?"),
        {
            "four": t("four times as long"),
            "same": t("just as long"),
            "quarter": t("a quarter of the time"),
        },
        ("same",),
        answers,
        t.paragraph(
            [
                t("Both bring in the same weights, and that is what takes the time."),
                _longer_prompt(t, known),
                _shorter_prompt(t, known),
            ]
        ),
    )


def _longer_prompt(t: Words, known: Known) -> str:
    """Why the run on show read for longer than it wrote a token, by the ridge of the machine it was measured on."""
    phases, run = known.phases, known.run
    if phases is None or run is None or phases.prefill_ns < LONGER * phases.decode_ns:
        return ""
    said = {"rows": t.number(phases.prompt_tokens), "factor": t.number(phases.prefill_ns / phases.decode_ns)}
    if phases.prompt_tokens <= lesson.PROMPT:
        return t(
            "The run on show took {factor} times as long to read its {rows} tokens as to write one: there something "
            "else than the weights took time as well.",
            **said,
        )
    longer = t(
        "The run on show read {rows} tokens at once, not four, and took {factor} times as long for them as for one "
        "written token.",
        **said,
    )
    dtype = DTYPES.get(run.request.dtype or "", "")
    own = ridge.of_ceilings(run.ceilings).get(dtype) if run.ceilings is not None and run.ceilings.bandwidth else None
    if own is None or run.request.weights is not None:
        return longer
    named = ridge_words.rows(t, own, dtype)
    if phases.prompt_tokens <= own:
        why = t(
            "They are fewer than the ridge of its machine, {ridge}; but a ridge counts with the fastest "
            "multiplication, and with so few rows the kernels are slower.",
            ridge=named,
        )
    elif phases.prefill_ns / phases.decode_ns <= EXPLAINED * phases.prompt_tokens / own:
        why = t(
            "They are more than the ridge of its machine, {ridge}, so their arithmetic takes longer than the bytes.",
            ridge=named,
        )
    else:
        why = t(
            "They are more than the ridge of its machine, {ridge}, but that explains a part of it only: a ridge counts "
            "with the fastest multiplication, and with so few rows the kernels are slower.",
            ridge=named,
        )
    return t.paragraph([longer, why])


def _shorter_prompt(t: Words, known: Known) -> str:
    """Where the question's own case can be measured here, if the run on show is not one."""
    if known.phases is None or known.phases.prompt_tokens <= lesson.PROMPT:
        return ""
    return t("To measure four, choose the example *Four tokens* on *Live run* and press **Run**.")
