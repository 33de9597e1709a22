"""Levers: what would make a run faster, predicted first, and one press later what it gives here."""

from __future__ import annotations

import streamlit as st

from engine import broker
from engine.errors import LabError
from engine.judging import ceilings_spreads, unsteady
from engine.record import Run
from engine.store import RunRow
from pages._parts import lever_chart, lever_results, lever_view, machine_facts, runs, session
from pages._parts.plain import plain
from pages._parts.words import Words

LISTED = 40
CHOICE, PROBLEM = "lever_run", "lever_problem"

t = session.words()
lab = broker.current()
me = session.owner()


def run_on_show() -> tuple[Run | None, LabError | None]:
    """The run in the address once it has ended; without one, the newest of this lab or the recorded one."""
    chosen = st.session_state.get("run_id")
    try:
        if chosen:
            found = runs.find(chosen)
            return (found, None) if isinstance(found, Run) else (None, None)
        rows = choices()
        return (lab.record(rows[0].id), None) if rows else (None, None)
    except LabError as error:
        return None, error


def choices() -> list[RunRow]:
    """Runs that wrote something, the newest first; those that answer a lever are not asked for levers of their own."""
    try:
        rows = lab.runs(LISTED)
    except LabError:  # a store that is away leaves the runs that ship
        return []
    return [row for row in rows if row.state == "done" and row.output_tokens > 2 and not row.forecast]


def label(t: Words, row: RunRow) -> str:
    """One run in the list."""
    rate = t("{rate} tokens/s", rate=t.number(row.tokens_per_s)) if row.tokens_per_s else ""
    return " · ".join(part for part in (row.model, rate, row.prompt[:40], t.moment(row.created_at)) if part)


def choose(shown: Run) -> None:
    """The list of runs."""

    def take() -> None:
        session.show_run(st.session_state[CHOICE])

    known = {row.id: label(t, row) for row in choices()}
    known.setdefault(shown.id, f"{shown.request.model} · {shown.request.prompt[:40]}")
    st.session_state[CHOICE] = shown.id
    st.selectbox(t("The run"), list(known), key=CHOICE, format_func=known.__getitem__, on_change=take)


def is_unsure(run: Run) -> bool:
    """Whether what is foretold from this run rests on a disturbed run or on ceilings that lay far apart."""
    disturbed = run.summary is not None and "disturbed" in run.summary.flags
    return disturbed or (run.ceilings is not None and unsteady(ceilings_spreads(run.ceilings)) is not None)


def pull(name: str) -> None:
    """Measure was pressed at a lever."""
    shown, _ = run_on_show()
    try:
        if shown is not None:
            forecast, _is_kept = lever_results.forecast_of(shown)
            [lever] = [each for each in forecast.levers if each.name == name]
            lever_results.pull(shown, lever, me)
    except LabError as error:
        st.session_state[PROBLEM] = error.sentence


def going_on() -> None:
    """How far the measurement is; one full rerun when it has ended."""
    run_id, experiment_id = lab.active_run(me), lab.experiments.active(me)
    active = run_id or experiment_id
    if active is None:
        st.rerun()
    progress = lab.snapshot(run_id).progress if run_id else lab.experiments.view(str(experiment_id)).progress
    said = t.sentence(progress.sentence) if progress else t("Measuring.")
    st.progress(min(1.0, (progress.fraction if progress else None) or 0.0), plain(said))
    st.button(t("Cancel"), icon=":material/stop:", on_click=lambda: lab.cancel(str(active), me))


shown, problem = run_on_show()
st.title(t("Levers"))
st.markdown(
    t(
        "A step reads bytes for the rows it works on. So there are three kinds of levers: fewer bytes, more rows for "
        "each reading, more tokens for each step. Each is predicted from the run's own ceilings, and that is kept "
        "before anything is measured."
    )
)
said = st.session_state.pop(PROBLEM, None)
if said is not None:
    st.error(plain(t.sentence(said)), icon=":material/error:")
if problem is not None:
    st.error(plain(t.sentence(problem.sentence)), icon=":material/link_off:")
if shown is None and problem is None:
    st.info(t("No run has ended yet: press Run on *Live run*, and come back."))
if shown is not None:
    choose(shown)
    try:
        forecast, is_kept = lever_results.forecast_of(shown)
        results, failures = lever_results.results(shown, forecast)
    except LabError as error:
        st.error(plain(t.sentence(error.sentence)), icon=":material/error:")
    else:
        busy = lab.active_run(me) is not None or lab.experiments.active(me) is not None
        here = lever_results.is_from_here(shown)
        if not here:
            device = plain(shown.device.name) if shown.device else "?"
            st.info(
                t(
                    "This run was measured on {device}, not by this machine as it is now: its levers can be predicted; "
                    "to pull them, run it here first.",
                    device=device,
                )
            )
        if shown.ceilings is not None:
            machine_facts.unsteady_ceilings(t, shown.ceilings)
        if shown.summary is not None and "disturbed" in shown.summary.flags:
            st.warning(t("This run was disturbed, so what is foretold from it is unsure: choose one made while nothing "
                         "else ran."), icon=":material/warning:")  # fmt: skip
        if busy:
            st.fragment(going_on, run_every=0.8)()
        if is_kept:
            st.caption(t("Predicted {when}, before any of the measurements.", when=t.moment(forecast.created_at)))
        unsure = is_unsure(shown)
        lever_chart.own(t, forecast, results, unsure=unsure)
        lever_view.table(t, forecast, results, failures, pull=pull, can_measure=here and not busy, unsure=unsure)
        st.subheader(t("Another device, another model"))
        st.caption(
            t(
                "This is not the run above made faster: each is held against the device or the model it replaces, by "
                "the roof of both, so these gains and those above do not multiply. They are predicted only."
            )
        )
        lever_chart.replaced(t, forecast, unsure=unsure)
        lever_view.replaced(t, forecast, unsure=unsure)
