"""Measured runs laid over a prediction: which there are of a model, and the points of those that are chosen."""

from __future__ import annotations

import streamlit as st

from engine import broker
from engine.errors import LabError
from engine.measured_points import MeasuredPoint, points
from engine.store import RunRow
from pages._parts.scene import MAX_RUNS
from pages._parts.scene_controls import PREFIX
from pages._parts.words import Words

LISTED = 40


def choose(t: Words, model: str) -> None:
    """The control: runs of this model, newest first. A link may name runs that are older than those listed."""
    try:
        rows = {row.id: row for row in broker.current().runs(LISTED, model) if row.state == "done"}
    except LabError:  # a store that is away takes nothing from a prediction
        rows = {}
    chosen: list[str] = st.session_state[f"{PREFIX}runs"]
    options = list(dict.fromkeys([*rows, *chosen]))
    if not options:
        st.caption(t("No run of this model yet; what is measured on *Live run* can be laid over this chart."))
    st.multiselect(
        t("Measured runs"),
        options,
        key=f"{PREFIX}runs",
        max_selections=MAX_RUNS,
        disabled=not options,
        format_func=lambda each: _label(t, rows[each]) if each in rows else each,
        placeholder=t("lay runs of this model over the chart"),
        help=t("Points of these runs are drawn as measured, in the machine's own time."),
    )


def _label(t: Words, row: RunRow) -> str:
    parts = [t.moment(row.created_at), t("batch {batch}", batch=row.batch)]
    if row.tokens_per_s:
        parts.append(t("{rate} tokens/s", rate=t.number(row.tokens_per_s)))
    return ", ".join(parts)


def measured(chosen: str) -> list[MeasuredPoint]:
    """The points of the runs an address names; those that are not here are left out."""
    found: list[MeasuredPoint] = []
    for run_id in (each for each in chosen.split(",")[:MAX_RUNS] if each):
        try:
            found += points(broker.current().record(run_id))
        except LabError:
            continue
    return found
