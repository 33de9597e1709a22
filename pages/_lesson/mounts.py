"""The lesson's own browser components beside the path: a run replayed, and the pen-and-paper task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine import lesson
from pages._parts import components, palette
from pages._parts.words import Words

_HERE = Path(__file__).parent
_TEXT = "../card/rich.js"
_replay = components.component(
    "roofline_replay",
    _HERE / "replay",
    "replay.html",
    ("../card/rich.css", "replay.css"),
    (_TEXT, "draw.js", "way.js", "replay.js"),
)
_paper = components.component("roofline_paper", _HERE / "paper", "paper.html", ("paper.css",), (_TEXT, "paper.js"))


def replay(data: dict[str, Any]) -> None:
    """A run, a step at a time; see `pages._lesson.replay_data`."""
    _replay(key="replay", data=data)


def paper(t: Words) -> None:
    """The task: which tokens belong to which phase, and how many passes. Checked in the browser."""
    prompt, output = lesson.PAPER
    text, engine = (lesson.passes(prompt, output, first_token_from_prefill=picks) for picks in (False, True))
    words = {
        "task": t(
            "A prompt has {prompt} tokens, the answer {output}. Press each token until it shows the phase it "
            "belongs to. How many passes does each phase take, and which phase takes longer?",
            prompt=prompt,
            output=output,
        ),
        "input": t("input token {number}"),
        "output": t("output token {number}"),
        "none": t("no phase yet"),
        "prefill": t("prefill"),
        "decode": t("decode"),
        "passes": t("passes in {phase}"),
        "check": t("Check"),
        "longer": t("Takes longer"),
        "choose": t("choose"),
        "all_right": t("All right."),
        "phase_right": t("The tokens: right."),
        "phase_wrong": t(
            "The tokens: the {prompt} of the prompt belong to prefill, the {output} written ones to decode.",
            prompt=prompt,
            output=output,
        ),
        "passes_right": t("The passes: right."),
        "passes_wrong": t("The passes: one for the whole prompt, and one for each written token."),
        "longer_right": t("Which takes longer: right."),
        "longer_wrong": t("Decode takes longer: it does little, but reads all weights each time, again and again."),
        "as_text": t("With a pass for each token written: 1 + {output} = {text} passes", output=output, text=text),
        "as_engine": t(
            "With the first of them picked from the prefill, as here: 1 + {less} = {engine} passes",
            less=engine - 1,
            engine=engine,
        ),
        "why": t(
            "The last row of the prefill already holds the scores of output token 1, so this engine picks it "
            "there. The token written last goes into no further pass. A long prompt need not cost much, a long "
            "answer does."
        ),
        "block": t("{count} tokens in one pass"),
    }
    data = {
        "prompt": prompt,
        "output": output,
        "passes": {"text": text, "engine": engine},
        "colours": {"prefill": palette.PREFILL, "decode": palette.DECODE},
        "words": words,
    }
    _paper(key="paper", data=data)
