"""Live sweeps: one model's steps over a growing batch, prompt or context, measured here beside what was predicted."""

from __future__ import annotations

import streamlit as st

from engine import checkpoint
from engine.experiment_task import ExperimentView
from engine.request import NARROWER, NARROWER_KV
from engine.sweeps import FIRST, USUAL, Axis, SweepRecord, SweepRequest, up_to
from pages._parts import bound, experiments, kept_experiments, session, sweep_view, terms
from pages._parts.links import DTYPES, KV, SAME, WEIGHTS, narrower
from pages._parts.overlay import AXES

MODEL, AXIS, UP_TO, CONTEXT, BATCH = "sweep_model", "axis", "up_to", "at_context", "at_batch"
DTYPE, MATRICES, CACHE = "computed_in", "weights_in", "cache_in"
CONTEXTS, BATCHES = USUAL["context"], USUAL["batch"]
DEFAULTS = {
    MODEL: "smollm2-135m",
    AXIS: "batch",
    UP_TO: FIRST["batch"],
    CONTEXT: 128,
    BATCH: 1,
    DTYPE: "float32",
    MATRICES: SAME,
    CACHE: SAME,
}

t = session.words()


def changed() -> None:
    """Something else is asked: what was measured before is no longer on show."""
    experiments.forget("sweep")


def seed(view: ExperimentView | None, models: list[str]) -> None:
    """A link to a record starts from what was measured."""
    record = view.record if view else None
    if isinstance(record, SweepRecord) and st.session_state.get("sweep_seeded") != record.id:
        st.session_state["sweep_seeded"] = record.id
        asked = record.request
        st.session_state.update(
            {AXIS: asked.axis, UP_TO: max(asked.values, default=1), DTYPE: asked.dtype or "float32"}
        )
        for name, value, known in ((MATRICES, asked.weights, WEIGHTS), (CACHE, asked.kv, KV)):
            st.session_state[name] = value if value in known else SAME
        st.session_state.update({MODEL: asked.model, CONTEXT: asked.context, BATCH: asked.batch})
    if st.session_state[MODEL] not in models:
        st.session_state[MODEL] = models[0]
    for name, stops in ((UP_TO, USUAL[st.session_state[AXIS]][1:]), (CONTEXT, CONTEXTS), (BATCH, BATCHES)):
        st.session_state[name] = experiments.nearest(stops, st.session_state[name])


def controls(models: list[str]) -> None:
    """What grows, of which model, and what is kept meanwhile."""

    def other_axis() -> None:
        st.session_state[UP_TO] = FIRST[st.session_state[AXIS]]
        changed()

    st.segmented_control(
        t("What grows"),
        list(AXES),
        key=AXIS,
        bind="query-params",
        required=True,
        on_change=other_axis,
        format_func=lambda axis: t(AXES[axis]),
    )
    axis: Axis = st.session_state[AXIS]
    st.selectbox(t("Model"), models, key=MODEL, bind="query-params", on_change=changed)
    st.select_slider(t("Up to"), USUAL[axis][1:], key=UP_TO, bind="query-params", on_change=changed)
    if axis == "batch":
        st.select_slider(
            t("Context"), CONTEXTS, key=CONTEXT, bind="query-params", on_change=changed, help=t(terms.KV_CACHE)
        )
    if axis == "context":
        st.select_slider(t("Batch B"), BATCHES, key=BATCH, bind="query-params", on_change=changed, help=t(terms.BATCH))
    st.segmented_control(
        t("Number format"),
        DTYPES,
        key=DTYPE,
        bind="query-params",
        required=True,
        on_change=changed,
        help=t(terms.DTYPE),
    )
    for label, names, key, explanation, narrowed in (
        (t("Weights"), WEIGHTS, MATRICES, terms.WEIGHT_FORMAT, NARROWER),
        (t("KV cache"), KV, CACHE, terms.KV_FORMAT, NARROWER_KV),
    ):
        st.selectbox(
            label,
            names,
            key=key,
            bind="query-params",
            on_change=changed,
            help=t(explanation),
            disabled=not narrowed[st.session_state[DTYPE]],
            format_func=lambda name: t("the same") if name == SAME else name,
        )


def request() -> SweepRequest:
    """What pressing Measure asks for."""
    state = st.session_state
    return SweepRequest(
        model=state[MODEL],
        axis=state[AXIS],
        values=up_to(state[AXIS], state[UP_TO]),
        context=state[CONTEXT],
        batch=state[BATCH] if state[AXIS] == "context" else 1,
        dtype=state[DTYPE],
        weights=narrower(state[DTYPE], state[MATRICES]),
        kv=narrower(state[DTYPE], state[CACHE], NARROWER_KV),
    )


def figures(record: SweepRecord) -> None:
    """Time and tokens a second, as far as they were measured."""
    sweep_view.draw(t, record)
    sweep_view.held(t, record)


models = [choice.id for choice in checkpoint.available()]
for name, value in DEFAULTS.items():
    st.session_state.setdefault(name, value)
bound.take(
    t,
    "sweeps",
    {
        MODEL: lambda: models,
        AXIS: lambda: list(AXES),
        UP_TO: lambda: USUAL[st.session_state[AXIS]][1:],
        CONTEXT: lambda: CONTEXTS,
        BATCH: lambda: BATCHES,
        DTYPE: lambda: DTYPES,
        MATRICES: lambda: WEIGHTS,
        CACHE: lambda: KV,
    },
)
view, _ = experiments.on_show("sweep")
seed(view, models)
going = view is not None and not view.ended
record = view.record if view is not None and isinstance(view.record, SweepRecord) else None
st.title(t("Live sweeps"))
st.markdown(
    t(
        "The engine's own steps, over a batch, a prompt or a context that grows. Each value is predicted before any is "
        "measured; the result can be laid over *Roofline* and *Batch and memory*."
    )
)
left, right = st.columns([4, 7], gap="large")
with left:
    controls(models)
    experiments.buttons(t, request)
    kept_experiments.earlier(
        t,
        "sweep",
        lambda row: " · ".join(
            part for part in (t(AXES.get(row.what, row.what)), row.model, row.format, t.moment(row.created_at)) if part
        ),
        view.id if view else None,
    )
with right:
    experiments.panel(
        t,
        "sweep",
        view,
        SweepRecord,
        unmeasured=lambda: sweep_view.unmeasured(t),
        verdict=lambda record: sweep_view.verdict(t, record),
        figures=figures,
    )
    if record is not None and not going:
        sweep_view.over(t, record)
if record is not None and not going:
    sweep_view.table(t, record)
kept_experiments.keep(t, "sweeps", record if not going else None)
