"""Measured runs and sweeps laid over a prediction: which there are of a model, and the points of those chosen."""

from __future__ import annotations

from contextlib import suppress

import streamlit as st

from engine import broker, random_shapes
from engine.errors import N_, LabError
from engine.experiment_row import ExperimentRow
from engine.measured_points import MeasuredPoint, points
from engine.record import Run
from engine.store import RunRow
from engine.sweeps import SweepRecord, measured_points
from pages._parts.scene import MAX_RUNS
from pages._parts.scene_controls import PREFIX
from pages._parts.words import Words

LISTED = 40
SEARCHED = 400
AXES = {"batch": N_("batch"), "prompt": N_("prompt length"), "context": N_("context")}


def choose(t: Words, model: str) -> None:
    """The control: runs of this model, newest first. A link may name runs that are older than those listed."""
    try:
        rows = {row.id: row for row in _runs_of(model) if row.state == "done"}
        swept = {row.id: row for row in broker.current().experiments.newest("sweep", LISTED, model) if row.points}
    except LabError:  # a store that is away takes nothing from a prediction
        rows, swept = {}, {}
    chosen: list[str] = st.session_state[f"{PREFIX}runs"]
    options = list(dict.fromkeys([*rows, *swept, *chosen]))
    if not options:
        st.caption(t("No run of this model yet; what is measured on *Live run* can be laid over this chart."))
    st.multiselect(
        t("Measured runs"),
        options,
        key=f"{PREFIX}runs",
        max_selections=MAX_RUNS,
        disabled=not options,
        format_func=lambda each: _label(t, rows[each]) if each in rows else _swept(t, swept.get(each), each),
        placeholder=t("lay runs of this model over the chart"),
        help=t(
            "Points of these runs are drawn as measured, in the machine's own time. A decode point is the run's median "
            "step; the rate in this list is the mean over all its steps."
        ),
    )
    st.page_link("sweeps.py", label=t("Measure a sweep on this machine"), icon=":material/stacked_line_chart:")


def _runs_of(model: str) -> list[RunRow]:
    """Runs of this model, whole, or, with random weights, in part."""
    part = f"{random_shapes.PREFIX}{model}"
    made_up = [row for row in broker.current().runs(SEARCHED) if row.model.partition("@")[0] == part]
    return [*broker.current().runs(LISTED, model), *made_up[:LISTED]]


def _label(t: Words, row: RunRow) -> str:
    parts = [t.moment(row.created_at), t("batch {batch}", batch=row.batch)]
    cut = row.model.partition("@layers=")[2]
    if cut:
        parts.append(t("{count} layers of it", count=cut))
    if row.tokens_per_s:
        parts.append(t("{rate} tokens/s", rate=t.number(row.tokens_per_s)))
    return ", ".join(parts)


def _swept(t: Words, row: ExperimentRow | None, sweep_id: str) -> str:
    if row is None:
        return sweep_id
    return t("sweep over {axis}, {when}", axis=t(AXES.get(row.what, row.what)), when=t.moment(row.created_at))


def records(chosen: str) -> list[Run]:
    """The runs an address names, of those that are here."""
    found = []
    for run_id in (each for each in chosen.split(",")[:MAX_RUNS] if each):
        with suppress(LabError):
            found.append(broker.current().record(run_id))
    return found


def measured(chosen: str) -> list[MeasuredPoint]:
    """The points of the runs and sweeps an address names; those that are not here are left out."""
    found: list[MeasuredPoint] = []
    for run_id in (each for each in chosen.split(",")[:MAX_RUNS] if each):
        try:
            found += points(broker.current().record(run_id))
        except LabError:
            found += _points_of_sweep(run_id)
    return found


def _points_of_sweep(sweep_id: str) -> list[MeasuredPoint]:
    try:
        record = broker.current().experiments.view(sweep_id).record
    except LabError:
        return []
    return measured_points(record) if isinstance(record, SweepRecord) else []
