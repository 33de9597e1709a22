"""What *Shapes* and *Live sweeps* do alike: the experiment in the address, start, cancel, progress.

An experiment is addressed as `?shape=<id>` or `?sweep=<id>`; the session reminds the address after a page switch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import streamlit as st

from engine import broker, experiment_record
from engine.errors import LabError
from engine.experiment import Experiment, Kind
from engine.experiment_record import AnyRecord, AnyRequest
from engine.experiment_task import ExperimentView
from engine.imported import imported_at
from engine.judging import run_flags, unsteady
from engine.shapes import ShapeRecord
from engine.sweeps import SweepRecord
from pages._parts import machine_facts, own_work, scene_parts, session
from pages._parts.links import parse_run
from pages._parts.plain import plain
from pages._parts.words import Words

Made = TypeVar("Made", ShapeRecord, SweepRecord)

POLL_S = 0.6
PROBLEM = "experiment_problem"


def on_show(kind: Kind) -> tuple[ExperimentView | None, LabError | None]:
    """The experiment in the address, or why it cannot be shown; neither where the address has none."""
    if kind in st.query_params:
        st.session_state[f"{kind}_id"] = parse_run({"run": st.query_params[kind]})
        if st.session_state[f"{kind}_id"] is None:
            return None, LabError("The experiment in this address cannot exist: its name has 12 letters or digits.")
    elif st.session_state.get(f"{kind}_id"):
        st.query_params[kind] = st.session_state[f"{kind}_id"]
    chosen = st.session_state.get(f"{kind}_id")
    if not chosen:
        return None, None
    try:
        return _of_kind(broker.current().experiments.view(chosen), kind), None
    except LabError as error:
        return None, error


def _of_kind(view: ExperimentView, kind: Kind) -> ExperimentView:
    if view.record is not None and view.record.kind != kind:
        raise LabError("Experiment {id} is of another kind; open it on the page it was made on.", id=view.id)
    return view


def show(kind: Kind, experiment_id: str) -> None:
    """Make this the experiment on show. Call from a callback."""
    st.session_state[f"{kind}_id"] = experiment_id
    st.query_params[kind] = experiment_id


def forget(kind: Kind) -> None:
    """Show none: what is asked has changed. Call from a callback."""
    st.session_state.pop(f"{kind}_id", None)
    if kind in st.query_params:
        del st.query_params[kind]


def start(request: AnyRequest) -> None:
    """Measure was pressed."""
    try:
        show(request.kind, broker.current().experiments.submit(request, session.owner()))
    except LabError as error:
        st.session_state[PROBLEM] = error.sentence


def stop(experiment_id: str) -> None:
    """Cancel was pressed."""
    try:
        broker.current().cancel(experiment_id, session.owner())
    except LabError as error:
        st.session_state[PROBLEM] = error.sentence


def buttons(t: Words, request: Callable[[], AnyRequest]) -> None:
    """Measure, and where this visitor's other work is, if it is what keeps the button from being pressed."""
    lab, me = broker.current(), session.owner()
    mine, run = lab.experiments.active(me), lab.active_run(me)
    st.button(
        t("Measure"),
        type="primary",
        icon=":material/play_arrow:",
        on_click=lambda: start(request()),
        disabled=mine is not None or run is not None,
    )
    if run is not None:
        own_work.wait(t("Your own run is still going; it has to end first."), lambda: lab.active_run(me) == run)
    elif mine is not None and mine not in st.query_params.to_dict().values():
        said = t("A measurement of yours is still going; it has to end first.")
        own_work.wait(said, lambda: lab.experiments.active(me) == mine)
    said = st.session_state.pop(PROBLEM, None)
    if said is not None:
        st.error(plain(t.sentence(said)), icon=":material/error:")


def progress(t: Words, view: ExperimentView) -> None:
    """How far it has come, and the button that ends it."""
    told = t.sentence(view.progress.sentence) if view.progress else t("Waiting for its turn.")
    st.progress(min(1.0, (view.progress.fraction if view.progress else None) or 0.0), plain(told))
    st.button(
        t("Cancel"),
        icon=":material/stop:",
        on_click=stop,
        args=(view.id,),
        disabled=view.owner != session.owner(),
        key=f"cancel_{view.id}",
    )


def is_starting() -> bool:
    """Whether the engine has yet to say which device it is: what was measured of this machine is not known yet."""
    return broker.current().machine().worker in ("starting", "restarting")


def wait_for_engine(t: Words) -> bool:
    """Say that the engine starts, once a full rerun when it has; whether there is still something to wait for."""
    if is_starting():
        st.session_state["engine_awaited"] = True
        st.caption(t("The engine is starting; its device is known in a moment."))
        return True
    if st.session_state.pop("engine_awaited", False):
        st.rerun()
    return False


def follow(t: Words, view: ExperimentView) -> None:
    """Its progress while it is going on, once a full rerun when it has just ended, and then what has to be known."""
    if not view.ended:
        st.session_state["following"] = view.id
        progress(t, view)
        return
    if st.session_state.pop("following", None) == view.id:
        st.rerun()
    state(t, view)


def state(t: Words, view: ExperimentView) -> None:
    """What has to be known of an experiment that has ended: that it was cut short, that it came from elsewhere."""
    record = view.record
    if record is None:
        return
    asked, measured = experiment_record.asked(record), experiment_record.measured(record)
    counts = {"measured": t.number(measured), "asked": t.number(asked)}
    if view.state == "cancelled" and measured >= asked:
        st.warning(t("Cancelled once all {asked} points asked for had been measured: fewer samples of each.", **counts))
    elif view.state == "cancelled":
        st.warning(t("Cancelled: of {asked} points asked for, {measured} were measured and are kept.", **counts))
    if view.state == "failed":
        if record.error is not None:
            st.error(plain(t.sentence(record.error)), icon=":material/error:")
        if measured:
            said = t("It ended early: of {asked} points asked for, {measured} were measured and are kept.", **counts)
            st.warning(said)
    if imported_at(record) is not None:
        device = plain(record.device.name) if record.device else "?"
        st.info(t("This experiment came from a file; it was measured on {device}, not here.", device=device))
    if any("beats_roof" in point.flags or "beats_datasheet" in point.flags for point in record.points):
        st.warning(
            t(
                "Some points are faster than their roof, which nothing is. Most likely this machine was busier while "
                "it was measured: measure it again on *This machine*."
            ),
            icon=":material/warning:",
        )
    _steadiness(t, record)
    for note in record.notes:
        st.caption(plain(t.sentence(note)))
    if view.notice is not None:
        st.warning(plain(t.sentence(view.notice)), icon=":material/warning:")


def _steadiness(t: Words, record: AnyRecord) -> None:
    """Whether the machine was left alone, while its ceilings were measured and while the experiment was."""
    has_sure_ceilings = record.ceilings is None or not machine_facts.unsteady_ceilings(t, record.ceilings)
    largest = unsteady(point.spread for point in record.points)
    if largest is not None:
        st.warning(
            t(
                "The samples of one point lie up to ± {spread} around their median: this machine was not left alone. "
                "Close other programs and press Measure again.",
                spread=t.percent(largest, 0),
            ),
            icon=":material/warning:",
        )
    elif has_sure_ceilings and run_flags([], record.probe, record.ceilings):
        st.warning(
            t("Other programs were using this machine meanwhile; close them and measure again before comparing."),
            icon=":material/warning:",
        )


def not_measured_yet(t: Words) -> bool:
    """Say that pressing Measure measures this machine first; False where that was done before."""
    if scene_parts.ceilings() is None:
        st.info(t("This machine has not been measured yet: pressing Measure does that first, in about a minute."))
        return True
    return False


def panel(
    t: Words,
    kind: Kind,
    view: ExperimentView | None,
    record_type: type[Made],
    *,
    unmeasured: Callable[[], None],
    verdict: Callable[[Made], None],
    figures: Callable[[Made], None],
) -> None:
    """The experiment in the address while it is being made and when it has ended, asked for again while it goes on.

    view: how it stood when the page began. unmeasured: what to show while the address has none. verdict: of one that
    has ended, above its figures.
    """

    def shown() -> None:
        now, problem = on_show(kind)
        if problem is not None:
            st.error(plain(t.sentence(problem.sentence)), icon=":material/link_off:")
        if now is None:
            if not wait_for_engine(t):
                unmeasured()
            return
        follow(t, now)
        record = now.record
        if isinstance(record, record_type) and record.points:
            where_and_when(t, record)
            if now.ended:
                verdict(record)
            figures(record)

    changes = is_starting() if view is None else not view.ended
    st.fragment(shown, run_every=POLL_S if changes else None)()


def nearest(stops: Sequence[int], value: int) -> int:
    """The stop of a slider that is nearest to a value."""
    return min(stops, key=lambda stop: abs(stop - value))


def where_and_when(t: Words, record: Experiment) -> None:
    """The machine and the moment of a record."""
    device = plain(record.device.name) if record.device else "?"
    threads = t.plural("{count} thread", "{count} threads", record.device.threads) if record.device else ""
    st.caption(
        t("Measured on {device}, {threads}, {when}.", device=device, threads=threads, when=t.moment(record.created_at))
    )
