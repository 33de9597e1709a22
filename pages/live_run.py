"""Live run: a prompt in, tokens and one measured point a step out, over the three lines."""

from __future__ import annotations

import streamlit as st

from engine import broker
from engine.errors import LabError
from engine.record import FINAL_STATES, Run, RunView
from engine.request import check
from pages._parts import components, controls, own_work, prompt_tokens, room, runs, session, summary
from pages._parts.folded import folded
from pages._parts.links import build_link
from pages._parts.live_data import live_data
from pages._parts.plain import plain

t = session.words()
lab = broker.current()
me = session.owner()


def run_on_show() -> tuple[Run | RunView | None, LabError | None]:
    """The run in the address; without one the recorded run that ships; or why there is neither."""
    if "run" not in st.query_params:
        return runs.shipped(), None
    run_id = st.session_state["run_id"]
    if run_id is None:
        return None, runs.missing()
    try:
        return runs.find(run_id), None
    except LabError as error:
        return None, error


def start() -> None:
    """Run was pressed."""
    request = controls.request_of(controls.current())
    try:
        check(request)
        session.show_run(lab.submit(request, me))
    except LabError as error:
        st.session_state["problem"] = error.sentence


def stop(run_id: str) -> None:
    """Cancel was pressed."""
    try:
        lab.cancel(run_id, me)
    except LabError as error:
        st.session_state["problem"] = error.sentence


def others(going: RunView | None, mine: str | None) -> None:
    """What the reader's buttons do while a run goes on that is not the one on show, or not theirs."""
    if mine is not None and (run is None or mine != run.id):
        link = build_link("", run=mine, language=t.language)
        own_work.wait(
            t("Your own run is still going: [show it]({link}).", link=link), lambda: lab.active_run(me) == mine
        )
    if mine is not None:
        return
    machine = lab.machine()
    if going is not None:
        st.caption(t("You are watching someone else's run: only they can cancel it."))
    if going is not None or machine.worker == "busy" or machine.waiting:
        said = {"place": t.number(machine.waiting + 1), "wait": t.number(max(1.0, machine.expected_wait_s), 0)}
        st.caption(t("The engine is at work for someone else. Press Run and yours waits its turn: place {place} in the "
                     "queue, in about {wait} s.", **said))  # fmt: skip


def show_imported() -> None:
    """A record was taken in from a file."""
    session.show_run(st.session_state["import"]["imported"])


run, problem = run_on_show()
going = run if isinstance(run, RunView) and run.state not in FINAL_STATES else None
controls.seed(t, run if isinstance(run, Run) and "run" in st.query_params else None)

st.title(t("Live run"))
st.markdown(
    t(
        "The model reads your prompt in one pass, then writes one token (a piece of a word) a pass. Each pass "
        "is a point on the chart: how long it took, beside what the machine could do at best and what was "
        "expected before the run."
    )
)

left, right = st.columns([4, 7], gap="large")
with left:
    mine = lab.active_run(me)
    view = controls.draw(t, is_running=mine is not None)
    fits = room.fits(t, view, st.session_state["prompt"], lab.machine().device)
    with st.container(horizontal=True):
        st.button(t("Run"), type="primary", icon=":material/play_arrow:", on_click=start,
                  disabled=mine is not None or not fits)  # fmt: skip
        if going is not None:
            st.button(t("Cancel"), icon=":material/stop:", on_click=stop, args=(going.id,), disabled=mine != going.id,
                      help=None if mine == going.id else t("Only whoever started a run can cancel it."))  # fmt: skip
    others(going, mine)
    said = st.session_state.pop("problem", None)
    if said is not None:
        st.error(plain(t.sentence(said)), icon=":material/error:")
    prompt_tokens.show(t, view)
controls.keep(view)

with right:
    if problem is not None:
        st.error(plain(t.sentence(problem.sentence)), icon=":material/link_off:")
    if isinstance(run, Run):
        summary.headline(t, run, is_elsewhere=runs.elsewhere(run))
    components.live_view(
        live_data(t, run, asked=view, measured=lab.machine().ceilings), key="live", on_end=lambda: None
    )

if isinstance(run, Run):
    if run.summary is not None:
        summary.metrics(t, run.summary)
    if "run" in st.query_params:  # the recorded run of a first visit goes without: its tables cost every visitor
        summary.details(t, run)
with folded(t("Open a run from a file"), "open_file") as is_open:
    if is_open:
        components.import_run(
            {"base": session.base_path(), "locale": t.language, "label": t("Choose a run's JSON file"),
             "busy": t("Reading the file."), "unreachable": t("The lab could not be reached; try again.")},
            key="import", on_import=show_imported,
        )  # fmt: skip
