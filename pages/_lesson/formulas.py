"""The formulas as written, with what each letter means and the current number of each. Draws; computes nothing."""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.errors import N_, LabError
from engine.lesson_formulas import Formula, Value, formulas
from pages._parts import explained, scene_controls, scene_parts, terms
from pages._parts.asked import resolve
from pages._parts.plain import plain
from pages._parts.scene import Scene
from pages._parts.words import Words

# id -> title, the formula, its result's letter, and the same with numbers in its letters' places. Names in braces are
# words of the reader's language.
WRITTEN: dict[str, tuple[str, str, str, str]] = {
    "step_time": (N_("Time of a step"), "t ≥ max(FLOPs / π, bytes / β)", "t", "max({FLOPs} / {π}, {bytes} / {β})"),
    "intensity": (N_("Arithmetic intensity"), "I = FLOPs / bytes", "I", "{FLOPs} / {bytes}"),
    "ridge": (N_("Ridge point"), "I* = π / β", "I*", "{π} / {β}"),
    "rate": (N_("Tokens a second"), "r = B / t", "r", "{B} / {t}"),
    "step_bytes": (
        N_("Bytes of a decode step"),
        "bytes = W + B × ({KV moved} + {state moved} + {logits})",
        "bytes",
        "{W} + {B} × ({KV moved} + {state moved} + {logits})",
    ),
    "largest_batch": (
        N_("Largest batch"),
        "B* = ⌊(M − C) / ({KV held} + {state held})⌋",
        "B*",
        "⌊({M} − {C}) / ({KV held} + {state held})⌋",
    ),
}
NAMES = {
    "KV moved": N_("KV moved"),
    "state moved": N_("state moved"),
    "KV held": N_("KV held"),
    "state held": N_("state held"),
    "logits": N_("logits"),
}
LETTERS: dict[str, str] = {
    "t": terms.STEP_TIME,
    "I": terms.ARITHMETIC_INTENSITY,
    "I*": terms.RIDGE,
    "r": terms.TOKENS_PER_S,
    "B*": terms.LARGEST_BATCH,
    "FLOPs": terms.FLOPS,
    "bytes": terms.BYTES,
    "π": terms.PEAK,
    "β": terms.BANDWIDTH,
    "B": terms.BATCH,
    "W": terms.WEIGHTS,
    "KV moved": N_("The cache of one sequence, as far as a step reads and writes it: all of it, and a new entry."),
    "state moved": N_("The state of one sequence as a step moves it: read as a whole and written back, so it counts "
                      "twice."),
    "KV held": N_("The room that the cache of one sequence takes in memory."),
    "state held": N_("The room that the state of one sequence takes in memory: once."),
    "logits": terms.LOGITS,
    "M": N_("M: the device's memory."),
    "C": N_("C: the whole checkpoint, parts that a step does not read included."),
}  # fmt: skip


def show(t: Words) -> None:
    """Every formula for the scene the reader last set on a prediction page; the lesson's own case before that."""
    scene: Scene = st.session_state.get("scene", Scene())
    try:
        asked = resolve(scene, scene_parts.ceilings())
        found = formulas(
            asked.spec,
            asked.device,
            formats=asked.formats,
            convention=asked.convention,
            preset=scene.preset,
            prompt=scene.prompt,
            context=scene.context,
            batch=scene.batch,
        )
    except LabError as error:
        scene_parts.refuse(t, error)
        return
    st.caption(
        t(
            "Filled with the current case: {model} on {device}, a decode step of {batch} at a context of "
            "{context}. Change it on *Roofline*, and the numbers here follow.",
            model=plain(asked.label),
            device=plain(scene_controls.device_name(t, scene.device)),
            batch=t.number(scene.batch),
            context=t.number(scene.context),
        )
    )
    for formula in found:
        _one(t, formula)


def _one(t: Words, formula: Formula) -> None:
    title, written, letter, filled = WRITTEN[formula.id]
    values = {name: said(t, value) for name, value in formula.terms.items()}
    with st.container(border=True, gap="xsmall"):
        st.markdown(f"**{t(title)}**")
        names = {name: t(word) for name, word in NAMES.items()}
        st.text(_fill(written, names))
        sign = "≥" if formula.id == "step_time" else "="
        st.text(f"{said(t, formula.result)} {sign} {_fill(filled, values)}")
        with st.container(horizontal=True, gap="xxsmall"):
            for name in (letter, *formula.terms):
                shown = names.get(name, name)
                with st.popover(
                    shown, type="tertiary", key=f"letter_{formula.id}_{name}", help=t("What is {term}?", term=shown)
                ):
                    st.markdown(t(LETTERS[name]))
                    st.markdown(f"**{plain(said(t, formula.result) if name == letter else values[name])}**")


def _fill(template: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        template = template.replace(f"{{{name}}}", value)
    return template


def said(t: Words, value: Value) -> str:
    """A value in its unit."""
    write: dict[str, Any] = {
        "s": lambda: explained.milliseconds(t, value.number),
        "flops": lambda: t.flops(value.number),
        "bytes": lambda: scene_parts.gigabytes(t, value.number),
        "flops_per_s": lambda: explained.peak(t, value.number),
        "bytes_per_s": lambda: t.bandwidth(value.number),
        "tokens_per_s": lambda: t("{rate} tokens/s", rate=t.number(value.number)),
        "flop_per_byte": lambda: t("{value} FLOP/byte", value=t.number(value.number)),
        "count": lambda: t.number(value.number),
    }
    text: str = write[value.unit]()
    return text
