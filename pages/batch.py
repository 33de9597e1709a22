"""Batch and memory: what more sequences gain, where the gain ends, and where memory does."""

from __future__ import annotations

import streamlit as st

from engine import growth
from engine.errors import LabError
from pages._parts import (
    batch_charts,
    components,
    explained,
    overlay,
    ridge_words,
    scene,
    scene_controls,
    scene_panel,
    scene_parts,
    session,
    terms,
)
from pages._parts.asked import Asked, resolve

NAMES = ("model", "device", "batch", "context", "weights", "kv", "state", "preset", "runs")

t = session.words()
ceilings = scene_parts.ceilings()


def numbers(asked: Asked, found: growth.Room) -> None:
    """The chosen batch, and one sequence beside it."""
    now, alone = asked.predict()["decode"], asked.predict(batch=1)["decode"]
    most = found.most
    scene_parts.metrics(
        [
            (
                t("One sequence"),
                t("{rate} tokens/s", rate=t.number(alone["tokens_per_s"])),
                explained.milliseconds(t, alone["time_s"]),
                t(terms.DECODE),
            ),
            (
                f"B = {t.number(now['batch'])}",
                t("{rate} tokens/s", rate=t.number(now["tokens_per_s"])),
                explained.milliseconds(t, now["time_s"]),
                t(terms.TOKENS_PER_S),
            ),
            (t("Intensity"), t.number(now["intensity"]), t("FLOP/byte"), t(terms.ARITHMETIC_INTENSITY)),
            (
                t("A sequence holds"),
                t.size(found.per_request_bytes),
                t("moves {size} a step", size=t.size((now["bytes"]["total"] - now["bytes"]["weights"]) / now["batch"])),
                f"{t(terms.HELD)} {t(terms.MOVED)}",
            ),
            (
                t("Held in all"),
                scene_parts.gigabytes(t, found.held.total),
                None if found.memory_bytes is None else t("of {size}", size=t.size(found.memory_bytes)),
                t(terms.WEIGHTS),
            ),
            (t("Largest batch"), "–" if most is None else t.number(most), None, t(terms.LARGEST_BATCH)),
        ],
        "batch",
    )
    held, read = float(found.held.weights), float(now["bytes"]["weights"])
    if held - read > held / 100:
        st.caption(
            t(
                "Of {held} of weights held a step reads {read}. The other {rest} are held and not read here: the "
                "embedding's other rows and, where a checkpoint has them, a vision tower, an MTP layer and experts "
                "not chosen.",
                held=scene_parts.gigabytes(t, held),
                read=scene_parts.gigabytes(t, read),
                rest=scene_parts.gigabytes(t, held - read),
            )
        )


scene_controls.seed("batch", NAMES)
st.title(t("Batch and memory"))
st.markdown(
    t(
        "Sequences written together share each reading of the weights. They do not share their caches and "
        "states: that bounds what a batch can gain, and memory bounds the batch."
    )
)

left, right = st.columns([4, 7], gap="large")
with left:
    scene_panel.panel(t, NAMES)
view = scene_controls.keep("batch", NAMES)
with right:
    try:
        asked = resolve(view, ceilings)
        grown = growth.over_batch(
            asked.spec,
            asked.roof,
            scene.stops("batch"),
            context=view.context,
            formats=asked.formats,
            convention=asked.convention,
        )
        limit = asked.predict()["limits"]["intensity_at_infinite_batch"]
    except LabError as error:
        scene_parts.refuse(t, error)
    else:
        found = scene_parts.room_of(asked)
        scene_parts.memory_alert(t, asked, found)
        scene_parts.unsteady_roof(t, asked, ceilings)
        numbers(asked, found)
        components.figure(
            batch_charts.throughput(t, grown, found, view.batch, overlay.measured(view.runs)), key="throughput_figure"
        )
        st.caption(
            t(
                "Tokens a second of all sequences together, both axes logarithmic. While the weights are most "
                "of the bytes, twice the batch is nearly twice the tokens; the line bends where each "
                "sequence's own bytes take over. Beyond the red line it does not fit."
            )
        )
        ridge = asked.roof.ridge_flop_per_byte
        named = ridge_words.mark(t, ridge, asked.dtype, scene_parts.whose(asked))
        components.figure(
            batch_charts.intensity(t, grown, found, view.batch, ridge, limit, ridge_name=named), key="intensity_figure"
        )
        st.caption(
            t(
                "Work for each byte moved. It rises with the batch but nears a limit of its own, because "
                "caches and states are read for one sequence each. Where the limit lies below the ridge, no "
                "batch makes arithmetic the bound."
            )
        )
        st.caption(ridge_words.machine(t, ceilings), help=ridge_words.why(t))
        components.figure(batch_charts.memory(t, grown, found, view.batch), key="memory_figure")
        st.caption(
            t(
                "What has to be held: the whole checkpoint once, and a cache and a state for each sequence. "
                "The stack meets the red line at the largest batch. A longer context moves that point to the "
                "left."
            )
        )
        scene_parts.convention_note(t, view)
scene_parts.share(t, "batch", view, NAMES)
