"""Roofline: the lesson's simulator. Prompt, batch and context move the points under a device's roof."""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.errors import LabError
from pages._parts import (
    components,
    explained,
    overlay,
    ridge_words,
    roofline_chart,
    scene_controls,
    scene_panel,
    scene_parts,
    session,
    tasks,
    terms,
)
from pages._parts.asked import Asked, resolve
from pages._parts.measured_roof import here_beside
from pages._parts.words import Words

NAMES = ("model", "device", "prompt", "batch", "context", "weights", "kv", "state", "preset", "runs")

t = session.words()
ceilings = scene_parts.ceilings()


def numbers(t: Words, asked: Asked, document: dict[str, Any]) -> None:
    """The scene in numbers."""
    prefill, decode, limits, capacity = (document[part] for part in ("prefill", "decode", "limits", "capacity"))
    attention, limit = decode["attention"]["intensity"], limits["intensity_at_infinite_batch"]
    bound_from = limits["compute_bound_prompt_tokens"]
    reached = f"T ≥ {t.number(bound_from)}" if bound_from else t("no prompt reaches it")
    scene_parts.metrics(
        [
            (
                t("Prefill"),
                explained.milliseconds(t, prefill["time_s"]),
                t("{time} a token", time=explained.milliseconds(t, prefill["time_per_token_s"])),
                t(terms.PREFILL),
            ),
            (
                t("Decode step"),
                explained.milliseconds(t, decode["time_s"]),
                t("{rate} tokens/s", rate=t.number(decode["tokens_per_s"])),
                t(terms.DECODE),
            ),
            (
                t("Decode intensity"),
                t.number(decode["intensity"]),
                t("limit {value}", value=t.number(limit, 0)) if limit != float("inf") else None,
                t(terms.INTENSITY_LIMIT),
            ),
            (
                t("Decode attention"),
                "–" if attention is None else t.number(attention),
                t("FLOP/byte"),
                t(terms.ATTENTION_ALONE),
            ),
            (
                t("Ridge"),
                t.number(document["ridge_flop_per_byte"], 0),
                f"{asked.dtype}, {reached}",
                t(terms.RIDGE),
            ),
            (
                t("Largest batch"),
                "–" if capacity["max_batch"] is None else t.number(capacity["max_batch"]),
                t("each holds {size}", size=t.size(capacity["per_request_bytes"])),
                t(terms.LARGEST_BATCH),
            ),
        ],
        "roofline",
    )


scene_controls.seed("roofline", NAMES)
st.title(t("Roofline"))
st.markdown(
    t(
        "Reading a prompt and writing a token are the same model under the same roof. What differs is how much "
        "work each byte is read for."
    )
)
tasks.lesson(t)

left, right = st.columns([4, 7], gap="large")
with left:
    scene_panel.panel(t, NAMES)
scene = scene_controls.keep("roofline", NAMES)
with right:
    try:
        asked = resolve(scene, ceilings)
        document = asked.predict()
    except LabError as error:
        scene_parts.refuse(t, error)
    else:
        scene_parts.memory_alert(t, asked, scene_parts.room_of(asked))
        scene_parts.unsteady_roof(t, asked, ceilings)
        here = here_beside(asked, ceilings)
        components.figure(
            roofline_chart.roofline(
                t,
                document,
                asked.roof,
                here,
                overlay.measured(scene.runs),
                device=scene_parts.whose(asked),
                dtype=asked.dtype,
            ),
            key="roofline_figure",
        )
        st.caption(
            t(
                "Left to right, more work for each byte; upwards, more work a second. A point on the slope "
                "waits for bytes, one on the flat part for arithmetic; no point can lie above the roof. The "
                "ring is the decode step if only weights were read: the gap to the blue point is what each "
                "sequence's own cache and state cost."
            )
        )
        st.caption(
            t.paragraph(
                [
                    ridge_words.machine(t, ceilings),
                    t(
                        "On this axis a ridge is in FLOP/byte: with weights of two bytes the same number as in rows, "
                        "with four bytes half of it."
                    ),
                ]
            ),
            help=ridge_words.why(t),
        )
        components.figure(roofline_chart.bytes_bar(t, document), key="bytes_figure")
        explained.inequality(t, asked, document)
        numbers(t, asked, document)
        scene_parts.convention_note(t, scene)
scene_parts.share(t, "roofline", scene, NAMES)
