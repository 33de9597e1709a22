"""This machine: its ceilings as measured, where its ridge lies, and the button that measures again."""

from __future__ import annotations

import streamlit as st

from engine import broker
from engine.ceilings import Ceilings
from engine.errors import LabError
from engine.tasks import MachineView
from pages._parts import charts, machine_facts, session
from pages._parts.plain import plain
from pages._parts.time_left import time_left
from pages._parts.words import Words

t = session.words()
lab = broker.current()
me = session.owner()


def measure() -> None:
    """Measure was pressed."""
    try:
        lab.calibrate(me)
    except LabError as error:
        st.session_state["problem"] = error.sentence


def cancel(task_id: str) -> None:
    """Cancel was pressed."""
    try:
        lab.cancel(task_id, me)
    except LabError as error:
        st.session_state["problem"] = error.sentence


def waiting_view() -> None:
    """The engine starts with the server and takes a few seconds; then one full rerun."""
    now = lab.machine()
    if now.device is not None or now.reason is not None:
        st.rerun()
    st.caption(t("The engine is starting; its device is known in a moment."))


def progress_view() -> None:
    """How far the measurement has come; one full rerun when it has ended."""
    task = lab.machine().calibration
    if task is None or task.ended:
        st.rerun()
    if task.progress is None:
        st.caption(t("Waiting for its turn: it starts when what the engine does now has ended."))
    else:
        fraction = task.progress.fraction
        said = [t.sentence(task.progress.sentence), time_left(t, task.id, fraction)]
        st.progress(fraction or 0.0, plain(" · ".join(part for part in said if part)))
    st.button(t("Cancel"), icon=":material/stop:", on_click=cancel, args=(task.id,), disabled=task.owner != me)


def ceilings_view(t: Words, ceilings: Ceilings) -> None:
    """The two curves, the numbers above them, and the file."""
    machine_facts.metrics(t, ceilings)
    st.header(t("How fast it reads"))
    st.caption(
        t(
            "A working set that fits in a cache is read faster than one that comes from memory; the smallest are read "
            "in hardly more time than the call takes, which makes them look slow. A run is "
            "judged by the rate at the bytes its own steps read, so its verdict may name another than the "
            "cards above."
        )
    )
    st.plotly_chart(charts.bandwidth_figure(t, ceilings), config=charts.CONFIG, key="bandwidth",
                    alt=t("Read bandwidth against the size of what is read."))  # fmt: skip
    if any(point.spread >= charts.WIDEST for point in ceilings.bandwidth):
        st.caption(t("Hollow points spread by more than their own value: too wide to draw, and not to be relied on."))
    machine_facts.ridges(t, ceilings)
    st.link_button(t("Measurements as JSON"), f"{session.base_path()}/api/machine.json", icon=":material/download:")


machine: MachineView = lab.machine()
st.title(t("This machine"))
st.markdown(
    t(
        "What the lab's predictions rest on: how fast this machine reads, multiplies and starts an operation. "
        "Measured apart from any run; nothing is fitted to a run."
    )
)
if machine.reason is not None:
    st.error(plain(t.sentence(machine.reason)), icon=":material/error:")
if machine.notice is not None:
    st.warning(plain(t.sentence(machine.notice)), icon=":material/warning:")
if machine.device is not None:
    machine_facts.device(t, machine.device)
elif machine.reason is None:
    st.fragment(waiting_view, run_every=1.0)()
said = st.session_state.pop("problem", None)
if said is not None:
    st.error(plain(t.sentence(said)), icon=":material/error:")
if machine.calibrating:
    st.fragment(progress_view, run_every=1.0)()
else:
    if machine.calibration is not None and machine.calibration.error is not None:
        st.error(plain(t.sentence(machine.calibration.error)), icon=":material/error:")
    if machine.ceilings is None:
        st.info(
            t("This machine has not been measured yet. It takes about a minute; the first run does it by itself."),
            icon=":material/straighten:",
        )
    st.button(
        t("Measure again") if machine.ceilings else t("Measure this machine"),
        type="primary",
        icon=":material/straighten:",
        on_click=measure,
    )
if machine.ceilings is not None:
    ceilings_view(t, machine.ceilings)
