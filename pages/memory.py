"""KV and state: what each token of context costs in different kinds of models, and where the kinds cross."""

from __future__ import annotations

import streamlit as st

from engine import catalogue, growth, roofline
from engine.errors import LabError
from pages._parts import (
    components,
    context_charts,
    last_run,
    overlay,
    run_growth,
    scene,
    scene_controls,
    scene_parts,
    session,
    terms,
)
from pages._parts.asked import formats_of, model_of
from pages._parts.roofline_chart import kind_names
from pages._parts.words import Words

NAMES = ("models", "context", "model", "kv", "state", "preset", "count", "runs")

t = session.words()
# Straight lines between powers of two need few points; windows and limits are powers of two.
CONTEXTS = (*(2**power * quarter // 4 for power in range(4, 20) for quarter in (4, 5, 6, 7)), 2**20)


def grown(model: str, view: scene.Scene) -> growth.ContextGrowth:
    """One model of the catalogue over the contexts shown."""
    spec = catalogue.load(model)
    return growth.over_context(spec, CONTEXTS, formats=formats_of(view, spec), convention=view.preset)


def table(t: Words, chosen: list[str], view: scene.Scene) -> None:
    """The models at the chosen context, in numbers."""
    rows, names = [], kind_names(t)
    for model in chosen:
        spec = catalogue.load(model)
        at = growth.over_context(spec, (view.context,), formats=formats_of(view, spec), convention=view.preset)
        one = growth.over_context(spec, (1,), formats=formats_of(view, spec), convention=view.preset)
        rows.append(
            {
                t("model"): model,
                t("KV a token"): t.size(one.kv_held[0]),
                t("KV held"): t.size(at.kv_held[0]),
                **{names[kind]: t.size(at.parts_held[kind][0]) for kind in ("window", "latent", "conv")},
                t("state held"): t.size(at.state_held[0]),
                t("moved a step"): t.size(at.moved[0]),
                t("context up to"): t.number(spec.max_position),
            }
        )
    for kind in ("window", "latent", "conv"):
        if all(row[names[kind]] == t.size(0) for row in rows):  # no model shown has it
            rows = [{name: value for name, value in row.items() if name != names[kind]} for row in rows]
    st.dataframe(
        rows, hide_index=True, alt=t("The models at this context: KV cache, state, and bytes moved in a step.")
    )


def crossings(t: Words, view: scene.Scene) -> None:
    """One model's kinds of memory against each other, and the contexts at which they are equal."""
    spec, label = model_of(view)
    formats = formats_of(view, spec)
    moved = roofline.kv_equals_state_context(spec, formats=formats, convention=view.preset)
    replaced = roofline.state_equals_replaced_kv_context(spec, formats=formats)
    st.subheader(t("Inside one model"))
    scene_controls.model(t)
    overlay.choose(t, view.model)
    if moved is None:
        st.info(
            t(
                "{model} has one kind of memory only, so nothing crosses: a cache that grows with each token, "
                "or a state that does not.",
                model=label,
            )
        )
    shown = growth.over_context(spec, CONTEXTS, formats=formats, convention=view.preset)
    components.figure(context_charts.inside(t, shown, "moved", moved), key="inside_moved")
    if moved is not None:
        st.markdown(
            t(
                "Reading the cache costs as much as reading and writing the state at a context of "
                "**{context}** tokens.",
                context=t.number(moved),
            ),
            help=t(terms.CROSSOVER),
        )
    components.figure(context_charts.inside(t, shown, "held", replaced, overlay.measured(view.runs)), key="inside_held")
    run_growth.draw(t, overlay.records(view.runs))
    if replaced is not None:
        st.markdown(
            t(
                "The state takes as much room as the cache it replaces would at a context of **{context}** tokens.",
                context=t.number(replaced),
            ),
            help=t(terms.REPLACED),
        )
    if moved is not None:
        st.caption(
            t(
                "Orange grows with every token, purple stays. In the upper chart the state weighs more left of the red "
                "line, the cache right of it; a state counts twice there, read and written at each step. In the lower "
                "chart the red line is where the state holds as much as the cache that it saves (dashed) would; the "
                "model's own cache is as large further to the right."
            )
        )


scene_controls.seed("memory", NAMES)
st.title(t("KV and state"))
st.markdown(
    t(
        "What a model remembers of a sequence: keys and values for each token, only those of a window, one "
        "compressed vector for all heads, or a state that never grows."
    )
)

left, right = st.columns([4, 7], gap="large")
with left:
    last_run.offer(t, NAMES)
    st.multiselect(t("Models"), catalogue.ids(), key="scene_models", max_selections=scene.MAX_MODELS, wrap=True)
    scene_controls.slider(t, "context", t("Context"), terms.KV_CACHE)
    names = {"held": t("held"), "moved": t("moved each step")}
    st.segmented_control(
        t("Bytes"),
        scene.CHOICES["count"],
        key="scene_count",
        required=True,
        format_func=names.__getitem__,
        help=f"{t(terms.HELD)} {t(terms.MOVED)}",
    )
    scene_controls.cache_formats(t)
    scene_controls.preset(t)
chosen = [model for model in st.session_state["scene_models"] if model in catalogue.ids()]
with right:
    if not chosen:
        st.info(t("Choose a model to see its curve."), icon=":material/touch_app:")
    curves = st.container()
numbers = st.container()  # more columns than the charts' width has room for
_, below = st.columns([4, 7], gap="large")
with below:
    try:
        crossings(t, scene_controls.current(NAMES))
    except LabError as error:
        scene_parts.refuse(t, error)
view = scene_controls.keep("memory", NAMES)
if chosen:
    with curves:
        try:
            components.figure(
                context_charts.models(t, [(each, grown(each, view)) for each in chosen], view.count, view.context),
                key="models_figure",
            )
            st.caption(
                t(
                    "One sequence of each model, both axes logarithmic. A straight rising line is a cache that "
                    "grows with every token; a line that turns flat has a window; a flat start is a state, "
                    "heavy at once and never heavier. Lower is more sequences in the same memory."
                )
            )
            with numbers:
                table(t, chosen, view)
        except LabError as error:
            scene_parts.refuse(t, error)
scene_parts.convention_note(t, view)
scene_parts.share(t, "memory", view, NAMES)
