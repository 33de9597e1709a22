"""A model so small that starting operations takes the time: as recorded with torch alone, and as it runs here."""

from __future__ import annotations

import streamlit as st

from engine import broker, lesson_measured, recorded
from engine.errors import LabError
from engine.lesson_measured import TwoPhases
from engine.record import Run
from pages._parts import runs
from pages._parts.plain import plain
from pages._parts.words import Words

SMALL = "tiny-3.7m"
LOOKED_AT = 20


def show(t: Words) -> None:
    """The recorded run beside the newest one of this machine, what the difference says, and how to make one."""
    st.subheader(t("Where the rule does not hold: a very small model"))
    small = (run for run in recorded.runs().values() if run.request.model == SMALL)
    kept = next((run for run in small if not is_compiled(run)), None)
    before = lesson_measured.two_phases(kept) if kept is not None else None
    own = newest()
    after = lesson_measured.two_phases(own) if own is not None else None
    if kept is not None and before is not None:
        st.markdown(_recorded(t, kept, before))
        _table(t, [(kept, before), *([(own, after)] if own is not None and after is not None else [])])
        st.markdown(_difference(t, before, own, after))
    with st.container(horizontal=True):
        asked = {"model": SMALL, "length": "64", "batch": "1", "lang": t.language}
        st.page_link("live_run.py", label=t("Run it here"), icon=":material/arrow_forward:", query_params=asked)
        if kept is not None:
            query = {"run": kept.id, "lang": t.language}
            st.page_link(
                "steps.py", label=t("The recorded run, step by step"), icon=":material/footprint:", query_params=query
            )


def newest() -> Run | None:
    """The newest run of the small model that this machine made: one sequence, in its own formats."""
    lab = broker.current()
    try:
        for row in lab.runs(LOOKED_AT, SMALL):
            if row.state == "done" and row.batch == 1 and not (row.shipped or row.imported or row.forecast):
                run = lab.record(row.id)
                if not runs.elsewhere(run) and lesson_measured.two_phases(run) is not None:
                    return run
    except LabError:  # a store that cannot be read is said elsewhere
        return None
    return None


def is_compiled(run: Run) -> bool:
    """Whether a whole step was one compiled function, and not one operation of torch after the other."""
    kernels = run.device.kernels if run.device is not None else {}
    # Records older than "whole_steps" were compiled whole or not at all; "few_rows" are single products.
    return kernels.get("decode", "torch") != "torch" and ("whole_steps" in kernels or "few_rows" not in kernels)


def _recorded(t: Words, run: Run, phases: TwoPhases) -> str:
    return t(
        "{model} has {size} of weights. Run by torch, which starts every operation by itself, a token took "
        "**{measured}** when it was recorded; its bytes need only {roof} at that machine's bandwidth. The rest went "
        "into starting one small operation after the other, and a faster memory would not have helped.",
        model=SMALL,
        size=t.size(run.steps[-1].bytes.weights),
        measured=t.duration(phases.decode_ns),
        roof=t.duration(phases.roof_decode_ns),
    )


def _difference(t: Words, before: TwoPhases, own: Run | None, after: TwoPhases | None) -> str:
    if own is None or after is None:
        return t(
            "The lab's own kernels are compiled: a whole step is then one function, started once. Run the model here, "
            "and its token stands beside the recorded one."
        )
    if not is_compiled(own):
        return t(
            "Here too every operation is started by itself: this machine runs without compiled kernels. With them a "
            "whole step would be one function, started once."
        )
    said = {"before": t.duration(before.rest_decode_ns), "after": t.duration(after.rest_decode_ns)}
    if after.rest_decode_ns < min(after.roof_decode_ns, before.rest_decode_ns):
        return t(
            "Here a whole step is one compiled function, started once. What is neither bytes nor arithmetic shrinks "
            "from {before} to {after}, and the small model waits for its bytes like the large ones. So it was never "
            "the model alone that made the starts the limit, but also the way it was run.",
            **said,
        )
    return t(
        "Here a whole step is one compiled function, started once. What is neither bytes nor arithmetic goes from "
        "{before} to {after}.",
        **said,
    )


def _table(t: Words, found: list[tuple[Run, TwoPhases]]) -> None:
    """The runs side by side: a token's time, what of it are bytes, and the rest."""
    rows = [
        {
            t("run"): t("recorded") if run.id in recorded.runs() else t("here"),
            t("how a step runs"): t("one compiled function") if is_compiled(run) else t("operation by operation"),
            t("a token"): t.duration(phases.decode_ns),
            t("of it bytes"): t.duration(phases.roof_decode_ns),
            t("the rest"): t.duration(phases.rest_decode_ns),
            t("expected before the run"): t.duration(phases.expected_decode_ns),
            t("device"): plain(run.device.name) if run.device else "?",
        }
        for run, phases in found
    ]
    head = "| " + " | ".join(rows[0]) + " |"
    lines = ["| " + " | ".join(row.values()) + " |" for row in rows]
    st.markdown("\n".join([head, "|" + "---|" * len(rows[0]), *lines]))
