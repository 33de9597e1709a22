"""What chosen runs held as their contexts grew, over what their own models and formats should hold. Draws alone."""

from __future__ import annotations

import streamlit as st

from engine import growth, measured_points, spec
from engine.ledger import Formats
from engine.record import Run
from engine.request import DTYPES
from pages._parts import components, context_charts
from pages._parts.plain import plain
from pages._parts.words import Words

POINTS = 40


def draw(t: Words, runs: list[Run]) -> None:
    """A chart a run, whatever model and formats the page shows otherwise; nothing for a record without its config."""
    for run in runs:
        held = measured_points.held(run)
        if not held or run.model is None or not run.model.config:
            continue
        format_, computed = run.model.kv_format, DTYPES.get(run.model.dtype, "fp32")
        last = max(each.context for each in held)
        contexts = tuple(sorted({1 + (last - 1) * n // POINTS for n in range(POINTS + 1)}))
        predicted = growth.over_context(
            spec.read(run.model.config), contexts, formats=Formats(kv=format_, plain=computed), convention="engine"
        )
        st.markdown(
            t(
                "**Measured: run {id}** of {model}, its cache in {format}. The rings are what its tensors held after "
                "each step, the lines what was predicted.",
                id=run.id,
                model=plain(run.request.model),
                format=format_,
            )
        )
        components.figure(context_charts.run_over_prediction(t, predicted, held), key=f"growth_{run.id}")
        if held[-1].state:
            st.caption(
                t(
                    "The cache grew from {first} to {last}; the state stayed at {state}, whatever the context.",
                    first=t.size(held[0].kv),
                    last=t.size(held[-1].kv),
                    state=t.size(held[-1].state),
                )
            )
