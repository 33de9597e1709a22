"""Step by step: any run replayed one step at a time, and the pen-and-paper task of the lesson."""

from __future__ import annotations

import streamlit as st

from engine.errors import LabError
from engine.record import Run
from pages._lesson import mounts
from pages._lesson.replay_data import replay_data
from pages._parts import misread, runs, session
from pages._parts.links import build_link
from pages._parts.plain import plain

t = session.words()
run_id = st.session_state.get("run_id")


def first_shown(steps: int) -> int:
    """The step in the address, counted from 1; the first where it makes no sense."""
    asked = st.query_params.get("at", "1")
    at = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 9 else 0
    misread.say(t, [] if 1 <= at <= steps else ["at"])
    return min(max(at, 1), steps) - 1


def until_it_ends(waited_for: str) -> None:
    """One full rerun as soon as the run can be replayed."""
    try:
        ended = isinstance(runs.find(waited_for), Run)
    except LabError:
        ended = True
    if ended:
        st.rerun()


st.title(t("Step by step"))
st.markdown(
    t(
        "One run again, a pass of the model at a time: which tokens go in, how many rows meet the matrices, "
        "what the cache gains, which bytes move, and how long it took."
    )
)
try:
    if "run" in st.query_params and run_id is None:
        raise runs.missing()
    run = runs.find(run_id) if run_id else runs.shipped()
except LabError as error:
    st.error(plain(t.sentence(error.sentence)), icon=":material/link_off:")
    run = None
if isinstance(run, Run) and run.steps:
    device = plain(run.device.name) if run.device else "?"
    said = t("Measured on {device}, model {model}.", device=device, model=plain(run.request.model))
    recorded = t("A recorded run.")
    st.caption(said if run_id else f"{recorded} {said}")
    mounts.replay(replay_data(t, run, first_shown(len(run.steps))))
elif isinstance(run, Run):
    st.info(t("This run has no step to replay: it ended before its first one."), icon=":material/info:")
elif run is not None:
    link = build_link("", run=run.id, language=t.language)
    st.info(t("This run has not ended yet; [watch it]({link}) or wait here.", link=link), icon=":material/timer:")
    st.fragment(until_it_ends, run_every=2.0)(run.id)
st.subheader(t("Pen and paper"))
mounts.paper(t)
