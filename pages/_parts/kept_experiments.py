"""What *Shapes* and *Live sweeps* have kept: the link and the files of one, the way in for a file, a list."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlencode

import streamlit as st

from engine import broker
from engine.errors import LabError
from engine.experiment import Kind
from engine.experiment_record import AnyRecord
from engine.experiment_row import ExperimentRow
from pages._parts import components, experiments, session
from pages._parts.plain import plain
from pages._parts.words import Words

LISTED = 12
KIND_OF: dict[str, Kind] = {"shapes": "shape", "sweeps": "sweep"}
"""What each page shows."""


def link(t: Words, page: str, record: AnyRecord) -> str:
    """An absolute link to a record."""
    return f"{session.address()}/{page}?{urlencode({record.kind: record.id, 'lang': t.language})}"


def keep(t: Words, page: str, record: AnyRecord | None) -> None:
    """The link, the files, and the way in for a file."""
    with st.expander(t("Share and keep"), icon=":material/link:"):
        if record is not None:
            st.code(link(t, page, record), language=None, wrap_lines=True)
            base = f"{session.base_path()}/api/experiments/{record.id}"
            with st.container(horizontal=True):
                st.link_button("JSON", f"{base}.json", icon=":material/download:")
                st.link_button("CSV", f"{base}.csv", icon=":material/download:")
        components.import_run(
            {"base": session.base_path(), "path": "/api/experiments", "locale": t.language,
             "label": t("Open an experiment's JSON file"), "busy": t("Reading the file."),
             "unreachable": t("The lab could not be reached; try again.")},
            key=f"import_{page}", on_import=lambda: _show_imported(page),
        )  # fmt: skip
        _say_elsewhere(t, page)


def _show_imported(page: str) -> None:
    imported = st.session_state[f"import_{page}"]["imported"]
    try:
        view = broker.current().experiments.view(imported)
    except LabError as error:
        st.session_state[experiments.PROBLEM] = error.sentence
        return
    kind = view.record.kind if view.record is not None else None
    if kind is not None and kind == KIND_OF[page]:
        experiments.show(kind, view.id)
    else:
        st.session_state[f"elsewhere_{page}"] = (kind, view.id)


def _say_elsewhere(t: Words, page: str) -> None:
    """Where an experiment is to be seen that was taken in here but is of another kind."""
    kind, taken_in = st.session_state.pop(f"elsewhere_{page}", (None, ""))
    if kind is None:
        return
    other = next((each for each, of in KIND_OF.items() if of == kind), None)
    if other is None:
        st.info(t("Taken in and kept. It belongs to *Levers*, where its run shows it."))
        return
    query = {kind: taken_in, "lang": t.language}
    st.page_link(f"{other}.py", label=t("Taken in and kept: it is shown on another page"), query_params=query,
                 icon=":material/arrow_forward:")  # fmt: skip


def earlier(t: Words, kind: Kind, label: Callable[[ExperimentRow], str], shown: str | None) -> None:
    """Those kept here, the newest first, each a press away."""
    try:
        rows = [row for row in broker.current().experiments.newest(kind, LISTED) if row.points]
    except LabError:  # a store that is away takes nothing from what is shown
        rows = []
    if not rows:
        return
    with st.expander(t("Measured earlier"), icon=":material/history:"):
        for row in rows:
            st.button(
                plain(label(row)),
                key=f"earlier_{row.id}",
                type="tertiary",
                on_click=experiments.show,
                args=(kind, row.id),
                disabled=row.id == shown,
            )
