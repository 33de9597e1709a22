"""What the four prediction pages show alike: this machine's ceilings, refusals, the link, the reading aid, memory."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from engine import broker
from engine.ceilings import Ceilings
from engine.errors import LabError
from engine.growth import Room, room
from engine.ledger import explain
from engine.measured_device import THIS_MACHINE
from pages._parts import machine_facts, session, terms
from pages._parts.asked import Asked, NotMeasuredError
from pages._parts.folded import folded
from pages._parts.plain import plain
from pages._parts.scene import Scene, link
from pages._parts.words import Words

METRIC_WIDTH = 165


def ceilings() -> Ceilings | None:
    """What this machine was measured to reach, if it was."""
    return broker.current().machine().ceilings


def refuse(t: Words, error: LabError) -> None:
    """Say why there is nothing to draw, and where to go."""
    if isinstance(error, NotMeasuredError):
        st.info(plain(t.sentence(error.sentence)), icon=":material/straighten:")
        st.page_link("machine.py", label=t("Measure this machine"), icon=":material/memory:")
        return
    st.error(plain(t.sentence(error.sentence)), icon=":material/error:")


def convention_note(t: Words, scene: Scene) -> None:
    """Whose rules the numbers follow; what these count, folded."""
    words = (
        (t("head"), terms.HEAD),
        (t("logits"), terms.LOGITS),
        (t("KV cache"), terms.KV_CACHE),
        (t("recurrent state"), terms.STATE),
        (t("convolution state"), terms.CONV),
    )
    told = "\n".join(f"- **{word}**: {t(meaning)}" for word, meaning in words)
    labels = {
        "lesson": t("Counted by the lesson's rules: what they count and leave out"),
        "engine": t("Counted by this engine's rules: what they count and leave out"),
    }
    label = labels.get(scene.preset, t("By which rules this is counted"))
    with folded(label, f"convention_{scene.preset}", icon=":material/rule:") as is_open:
        if is_open:
            st.caption(plain(t.sentence(explain(scene.preset))))
            st.caption(f"{t(terms.CONVENTION)}\n{told}")


def share(t: Words, page: str, scene: Scene, names: Sequence[str]) -> None:
    """The link to exactly this view, to copy."""
    with st.expander(t("Link to this view"), icon=":material/link:"):
        st.caption(t("Every value is in the link; it shows the same to anyone who can reach this lab."))
        st.code(link(session.address(), page, scene, names, t.language), language=None, wrap_lines=True)


def whose(asked: Asked) -> str | None:
    """The name of the device asked about; None for this machine."""
    return None if asked.device.id == THIS_MACHINE else str(asked.device.name)


def room_of(asked: Asked) -> Room:
    """The scene's batch against the device's memory."""
    scene = asked.scene
    return room(
        asked.spec,
        asked.device,
        batch=scene.batch,
        context=scene.context,
        formats=asked.formats,
        convention=asked.convention,
    )


def memory_alert(t: Words, asked: Asked, found: Room) -> None:
    """In red, with its numbers, when the batch does not fit."""
    if not found.over_bytes or found.memory_bytes is None:
        return
    scene = asked.scene
    st.error(
        t(
            "{memory} of memory do not hold this: {weights} of weights and {batch} × {each} of cache and state "
            "are {needed}, {over} too much. "
            "At a context of {context} at most {most} fit.",
            memory=t.size(found.memory_bytes),
            weights=gigabytes(t, found.held.weights),
            batch=t.number(scene.batch),
            each=t.size(found.per_request_bytes),
            needed=gigabytes(t, found.held.total),
            over=gigabytes(t, found.over_bytes),
            context=t.number(scene.context),
            most=t.number(found.most or 0),
        ),
        icon=":material/memory_alt:",
    )


def unsteady_roof(t: Words, asked: Asked, ceilings: Ceilings | None) -> None:
    """What to know of this machine's roof where that is what is shown and its repetitions lay far apart."""
    if ceilings is not None and whose(asked) is None:
        machine_facts.unsteady_ceilings(t, ceilings)


def gigabytes(t: Words, count_bytes: float) -> str:
    """Bytes in GB to two decimals, as the lesson prints them: 51.25 GB; smaller amounts in their own unit."""
    return f"{t.number(count_bytes / 1e9, 2)} GB" if count_bytes >= 1e8 else t.size(count_bytes)


def metrics(shown: Sequence[tuple[str, str, str | None, str]], key: str) -> None:
    """Numbers in a row: label, value, a second line, and what it means on hover."""
    with st.container(key=f"metrics-{key}", horizontal=True, gap="small"):
        for label, value, second, explanation in shown:
            st.metric(
                label,
                value,
                second,
                delta_color="off",
                delta_arrow="off",
                help=explanation,
                border=True,
                width=METRIC_WIDTH,
            )
