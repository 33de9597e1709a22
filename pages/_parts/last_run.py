"""The run a reader has just measured, offered to the prediction pages: one press sets the scene to what was run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from engine import broker, catalogue
from engine.errors import LabError
from engine.measured_device import THIS_MACHINE
from engine.record import Run
from engine.request import DTYPES
from pages._parts import runs, scene_controls
from pages._parts.words import Words


def offer(t: Words, names: Sequence[str]) -> None:
    """A button that shows this session's last run here; nothing where there is none that a prediction can hold.

    Args:
        names: the controls of the page.
    """
    run = _last()
    if run is None:
        return
    values = {name: value for name, value in _scene_of(run).items() if name in (*names, "runs")}
    if all(st.session_state.get(scene_controls.PREFIX + name) == value for name, value in values.items()):
        st.caption(t("Your last run is on the chart, as measured, beside what is predicted for it."))
        return
    st.button(
        t("Show my last run: {model} on this machine", model=run.request.model),
        icon=":material/timeline:",
        on_click=scene_controls.choose,
        kwargs=values,
        help=t("Sets model, device, formats and lengths to those of your run and lays its measured points over them."),
    )


def _last() -> Run | None:
    """The run on show in this session, if it was measured here, has ended, and is of a model predictions know."""
    run_id = st.session_state.get("run_id")
    if not run_id:
        return None
    try:
        found = runs.find(run_id)
    except LabError:
        return None
    if not isinstance(found, Run) or found.state != "done" or runs.elsewhere(found):
        return None
    is_known = found.request.model in catalogue.ids() and broker.current().machine().ceilings is not None
    return found if is_known else None


def _scene_of(run: Run) -> dict[str, Any]:
    request, prompt = run.request, len(run.prompt.token_ids) if run.prompt else 1
    plain = DTYPES.get(request.dtype or "", "fp32")
    return {
        "model": request.model,
        "device": THIS_MACHINE,
        "prompt": prompt,
        "batch": request.batch,
        "context": prompt + len(run.steps) // 2,
        "weights": request.weights or plain,
        "kv": request.kv or plain,
        "preset": "engine",
        "estimate": "decode",
        "runs": [run.id],
    }
