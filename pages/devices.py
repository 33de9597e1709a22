"""Devices: two estimates of the same step - compute alone, bytes alone - for every device, and which one is right."""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.errors import LabError
from engine.hardware import Device
from engine.two_estimates import estimate, estimates, work
from pages._lesson import misconceptions
from pages._parts import (
    components,
    device_charts,
    device_facts,
    last_run,
    overlay,
    scene,
    scene_controls,
    scene_panel,
    scene_parts,
    session,
)
from pages._parts.asked import all_devices, device_of, resolve
from pages._parts.folded import folded

NAMES = (
    "model",
    "before",
    "device",
    "estimate",
    "prompt",
    "batch",
    "context",
    "weights",
    "kv",
    "state",
    "preset",
    "runs",
)

t = session.words()
ceilings = scene_parts.ceilings()


def swap() -> None:
    """The two cards change places."""
    now = scene_controls.current(NAMES)
    scene_controls.choose(before=now.device, device=now.before)


scene_controls.seed("devices", NAMES)
st.title(t("Devices"))
st.markdown(
    t(
        "Estimate the speed twice: once as if only arithmetic took time, once as if only reading did. The "
        "slower of the two is the one to believe."
    )
)

misconceptions.show(t)

left, right = st.columns([4, 7], gap="large")
with left:
    last_run.offer(t, NAMES)
    scene_controls.device(t, "before", t("Card before"))
    scene_controls.device(t, "device", t("Card after"))
    st.button(t("Swap"), icon=":material/swap_horiz:", on_click=swap)
    scene_controls.model(t)
    asked_of = {"weights": t("weights alone"), "decode": t("decode step"), "prefill": t("prefill")}
    st.segmented_control(
        t("Estimate"),
        scene.CHOICES["estimate"],
        key="scene_estimate",
        required=True,
        wrap=True,
        format_func=asked_of.__getitem__,
    )
    asked_for = {"prefill": ("prompt",), "weights": ("batch",), "decode": ("batch", "context")}
    scene_panel.sliders(t, asked_for[st.session_state["scene_estimate"]])
    scene_panel.counting(t)
view = scene_controls.keep("devices", NAMES)
listed: list[Any] = []
every: list[Any] = []
with right:
    try:
        asked = resolve(view, ceilings)
        rules: dict[str, Any] = {"formats": asked.formats, "convention": asked.convention}
        of: Any = view.estimate
        other = device_of(view, view.before, ceilings, asked.spec, asked.formats, asked.convention)
        step = work(asked.spec, of, prompt_tokens=view.prompt, context=view.context, batch=view.batch, **rules)
        before, after = estimate(step, other, **rules), estimate(step, asked.device, **rules)
    except LabError as error:
        scene_parts.refuse(t, error)
    else:
        unit = t("tokens/s")
        device_facts.exchange(t, before, after, unit)
        listed = all_devices(view, ceilings, asked.spec, asked.formats, asked.convention)
        every = estimates(step, listed, **rules)
        phase = "prefill" if view.estimate == "prefill" else "decode"
        measured = [each for each in overlay.measured(view.runs) if each.phase == phase]
        components.figure(device_charts.both(t, every, before, after, measured, unit=unit), key="devices_figure")
        st.caption(
            t(
                "Each point is a device; to the right, faster by bytes, upwards, faster by compute. Points "
                "above the dashed line are held back by bytes, and only a step to the right makes them faster. "
                "Longer prompts and larger batches move all points towards the line."
            )
        )
        with folded(t("The two cards: figures, usual mistakes, sources"), "two_cards") as is_open:
            for each in (other, asked.device):
                if is_open and isinstance(each, Device):
                    device_facts.card(t, each)
        scene_parts.convention_note(t, view)
if every:
    device_facts.table(t, every)
    device_facts.left_out(t, listed, every)
st.subheader(t("What others measured"))
device_facts.published(t)
scene_parts.share(t, "devices", view, NAMES)
