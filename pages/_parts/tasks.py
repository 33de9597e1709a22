"""The lesson's four things to try, each a row of buttons that set the controls, and what to watch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from engine.errors import N_
from pages._parts import scene_controls
from pages._parts.words import Words


@dataclass(frozen=True)
class Task:
    """What to do, what to watch, and the settings to step through by name."""

    text: str
    steps: tuple[tuple[str, dict[str, Any]], ...]


ANCHOR = {
    "model": "Qwen/Qwen3.8-27B",
    "device": "h100-sxm",
    "preset": "lesson",
    "weights": "own",
    "kv": "own",
    "state": "own",
}
LESSON = (
    Task(
        N_(
            "**Longer prompts.** The green point climbs the slope and reaches the flat part near T = 295. A "
            "short prompt waits for bytes too."
        ),
        tuple(
            (f"T = {tokens:,}", ANCHOR | {"prompt": tokens, "batch": 1, "context": 4096}) for tokens in (4, 295, 2048)
        ),
    ),
    Task(
        N_(
            "**More sequences.** The ring moves right with B, the blue point ever more slowly, and never past "
            "93; at 59 memory is full."
        ),
        tuple((f"B = {batch}", ANCHOR | {"prompt": 4, "batch": batch, "context": 4096}) for batch in (1, 16, 58, 59)),
    ),
    Task(
        N_(
            "**Another model.** Qwen3-32B has no state, but four times the KV a token: watch orange take over "
            "its bar as the context grows."
        ),
        tuple(
            (f"{name}, {label}", ANCHOR | {"model": model, "batch": 8, "context": context})
            for model, name in (("Qwen/Qwen3-32B", "Qwen3-32B"), ("Qwen/Qwen3.8-27B", "Qwen3.8-27B"))
            for context, label in ((4096, "4K"), (32_768, "32K"))
        ),
    ),
    Task(
        N_(
            "**Attention alone.** The small purple point stays at 6, the number of query heads that share a KV "
            "head, whatever the batch."
        ),
        tuple((f"B = {batch}", ANCHOR | {"batch": batch, "context": 4096}) for batch in (1, 58)),
    ),
)


def lesson(t: Words) -> None:
    """The four tasks, folded away until wanted."""
    with st.expander(t("Four things to try"), icon=":material/ads_click:"):
        for number, task in enumerate(LESSON):
            st.markdown(f"{number + 1}. {t(task.text)}")
            with st.container(horizontal=True, gap="small"):
                for step, (label, values) in enumerate(task.steps):
                    st.button(label, key=f"try_{number}_{step}", on_click=scene_controls.choose, kwargs=values)
