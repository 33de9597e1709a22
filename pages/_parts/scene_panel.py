"""The controls that prediction pages have in common, in one order: what is asked of which model on which device."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from pages._parts import last_run, overlay, scene_controls, terms
from pages._parts.words import Words


def sliders(t: Words, names: Sequence[str]) -> None:
    """Those of prompt length, batch and context that the page has."""
    known = {
        "prompt": (t("Prompt length T"), terms.PREFILL),
        "batch": (t("Batch B"), terms.BATCH),
        "context": (t("Context"), terms.KV_CACHE),
    }
    for name in (each for each in known if each in names):
        scene_controls.slider(t, name, *known[name])


def panel(t: Words, names: Sequence[str]) -> None:
    """All controls of a page that asks about one model on one device."""
    last_run.offer(t, names)
    sliders(t, names)
    scene_controls.model(t)
    scene_controls.device(t)
    counting(t)


def counting(t: Words) -> None:
    """How it is counted, in which formats, beside which measured runs."""
    scene_controls.preset(t)
    with st.expander(t("Formats and measured runs")):
        scene_controls.formats(t)
        overlay.choose(t, st.session_state["scene_model"])
