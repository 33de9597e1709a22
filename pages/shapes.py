"""Shapes: one weight matrix multiplied with more and more rows, here, beside what was predicted."""

from __future__ import annotations

import streamlit as st

from engine import catalogue, matrices
from engine.experiment_task import ExperimentView
from engine.matrices import FORMATS, Matrix
from engine.shapes import ROWS, ShapeRecord, ShapeRequest
from pages._parts import bound, experiments, kept_experiments, scene_parts, session, shape_view, terms

MODEL, MATRIX, FORMAT, MOST, DRAWN = "matrix_of", "matrix", "held_in", "rows", "drawn"
DEFAULTS = {MODEL: ShapeRequest().model, MATRIX: ShapeRequest().matrix, FORMAT: "bf16", MOST: ROWS[-1], DRAWN: 4}

t = session.words()


def changed() -> None:
    """Another matrix is asked about: what was measured of the one before is no longer on show."""
    experiments.forget("shape")


def seed(view: ExperimentView | None) -> None:
    """A link to a record starts from what was measured."""
    record = view.record if view else None
    if not isinstance(record, ShapeRecord) or st.session_state.get("shape_seeded") == record.id:
        return
    st.session_state["shape_seeded"] = record.id
    asked = record.request
    if asked.model in catalogue.ids() and asked.matrix in matrices.of(catalogue.load(asked.model)):
        most = experiments.nearest(ROWS, max(asked.rows, default=ROWS[-1]))
        st.session_state.update({MODEL: asked.model, MATRIX: asked.matrix, FORMAT: asked.weights, MOST: most})


def controls() -> Matrix:
    """Which matrix, in what, up to how many rows."""
    model = st.selectbox(t("Model"), catalogue.ids(), key=MODEL, bind="query-params", on_change=changed)
    known = matrices.of(catalogue.load(model))
    if st.session_state[MATRIX] not in known:
        st.session_state[MATRIX] = next((name for name in known if "up_proj" in name), next(iter(known)))
    st.selectbox(
        t("Matrix"),
        list(known),
        key=MATRIX,
        bind="query-params",
        on_change=changed,
        format_func=lambda name: f"{name} {known[name].k}×{known[name].n}",
        help=t(
            "As the checkpoint stores it, or as this engine multiplies it: q, k and v side by side, gate and up too."
        ),
    )
    st.segmented_control(
        t("Weights"),
        list(FORMATS),
        key=FORMAT,
        bind="query-params",
        required=True,
        on_change=changed,
        help=t(terms.DTYPE),
    )
    st.select_slider(t("Up to rows"), ROWS[2:], key=MOST, bind="query-params", on_change=changed)
    return known[st.session_state[MATRIX]]


def request() -> ShapeRequest:
    """What pressing Measure asks for."""
    state = st.session_state
    rows = [each for each in ROWS if each <= state[MOST]]
    return ShapeRequest(model=state[MODEL], matrix=state[MATRIX], weights=state[FORMAT], rows=rows)


def predicted() -> None:
    """Before anything is measured: the roof of the matrix asked about."""
    ceilings, asked = scene_parts.ceilings(), request()
    if experiments.not_measured_yet(t) or ceilings is None:
        return
    record = ShapeRecord.model_construct(
        points=matrices.predict(matrix, asked.weights, asked.rows, ceilings),
        ceilings=ceilings,
        k=matrix.k,
        n=matrix.n,
        dtype=FORMATS[asked.weights],
        weight_bytes=matrix.bytes_in(asked.weights),
    )
    st.caption(
        t("The roof is a prediction from this machine's ceilings. Press Measure to lay the measurement over it.")
    )
    shape_view.figures(t, record)


for name, value in DEFAULTS.items():
    st.session_state.setdefault(name, value)
bound.take(
    t,
    "shapes",
    {
        MODEL: catalogue.ids,
        MATRIX: lambda: list(matrices.of(catalogue.load(st.session_state[MODEL]))),
        FORMAT: lambda: list(FORMATS),
        MOST: lambda: ROWS[2:],
        DRAWN: lambda: ROWS[1:],
    },
)
view, _ = experiments.on_show("shape")
seed(view)
going = view is not None and not view.ended
record = view.record if view is not None and isinstance(view.record, ShapeRecord) else None
st.title(t("Shapes"))
st.markdown(
    t(
        "One weight matrix, multiplied with more and more rows. It has to be read once whatever the rows, so a "
        "few cost what one costs: a flat start. From the knee on every further row costs time."
    )
)
left, right = st.columns([4, 7], gap="large")
with left:
    matrix = controls()
    said = t(
        "{count} of them in the model, {size} each. True shape, made-up numbers: a product takes as long "
        "whatever they are.",
        count=t.number(matrix.count),
        size=t.size(matrix.bytes_in(st.session_state[FORMAT])),
    )
    st.caption(said)
    experiments.buttons(t, request)
    kept_experiments.earlier(
        t,
        "shape",
        lambda row: f"{row.what} · {row.model} · {row.format} · {t.moment(row.created_at)}",
        view.id if view else None,
    )
with right:
    experiments.panel(
        t,
        "shape",
        view,
        ShapeRecord,
        unmeasured=predicted,
        verdict=lambda record: shape_view.verdict(t, record),
        figures=lambda record: shape_view.figures(t, record),
    )
st.header(t("The same matrix, read for one row or for many"))
st.select_slider(t("Rows of the prompt"), ROWS[1:], key=DRAWN, bind="query-params")
shape_view.drawing(t, matrix, st.session_state[FORMAT], st.session_state[DRAWN], record)
if record is not None and not going:
    shape_view.table(t, record)
kept_experiments.keep(t, "shapes", record if not going else None)
