"""What the live view's browser side is given: the run to follow, its colours, and every word it may show."""

from __future__ import annotations

from typing import Any

from engine.ceilings import Ceilings, multiplication
from engine.record import Run, RunView
from engine.request import DTYPES
from pages._parts import api, figures, palette, session, terms
from pages._parts.choices import choices
from pages._parts.links import View
from pages._parts.roofline_chart import KIND_TERMS, kind_names
from pages._parts.words import Words

_COLOURS = {"prefill": palette.PREFILL, "decode": palette.DECODE, "floor": palette.FLOOR, **figures.KIND_COLOURS}


SMALL_PARAMETERS = 3e9
"""A model below this often writes nonsense, and a reader who does not know that blames the lab."""


def live_data(t: Words, run: Run | RunView | None, *, asked: View, measured: Ceilings | None) -> dict[str, Any]:
    """The component's data.

    Args:
        run: the run on show; one that has not ended is followed, and its end is told to Python once.
        asked: what the controls say, for the empty chart before a first run.
        measured: this machine's ceilings, for a run whose record with its own is not written yet.
    """
    ceilings = run.ceilings if isinstance(run, Run) else measured
    return {
        "run": run.id if run else None,
        "live": isinstance(run, RunView) and not run.ended,
        "length": run.request.max_new_tokens if run else asked.length,
        "answers": bool(run and run.request.chat),
        "base": session.base_path(),
        "plotly": session.base_path() + api.PLOTLY_PATH,
        "locale": t.language,
        "colours": _COLOURS,
        "words": _words(t) | {"writer": _writer(t, run)},
        "limits": _limits(ceilings, _multiplication(run, asked)),
    }


def _writer(t: Words, run: Run | RunView | None) -> str:
    """What to think of the text: who writes it."""
    if isinstance(run, Run) and run.model is not None:
        weights, parameters = run.model.weights, run.model.parameters
    else:
        asked = run.request.model if run else None
        choice = choices().get(asked or "")
        if choice is None:
            return ""
        weights, parameters = choice.weights, choice.parameters
    if weights == "random":
        return t("The weights are random: the text means nothing, the timing is real.")
    if not 0 < parameters < SMALL_PARAMETERS:
        return ""
    return t(
        "A small model of {count} parameters: what it writes may be wrong or make no sense. The timing is what counts "
        "here.",
        count=t.many(parameters),
    )


def _multiplication(run: Run | RunView | None, asked: View) -> str:
    """What is computed in, as ceilings name it."""
    dtype = DTYPES.get((run.request.dtype if run else None) or asked.dtype, "fp32")
    return multiplication(dtype, run.request.weights if run else None)


def _limits(ceilings: Ceilings | None, computed_in: str) -> dict[str, float | None]:
    """The two rates that say by how much a step's larger term binds."""
    if ceilings is None or not ceilings.bandwidth:
        return {"flops_per_s": None, "bytes_per_s": None}
    return {
        "flops_per_s": ceilings.peak(computed_in),
        "bytes_per_s": ceilings.bandwidth[-1].bytes_per_s,
    }


def _words(t: Words) -> dict[str, str]:
    return {
        "step": t("step"),
        "time_axis": t("Time of each step, ms"),
        "bytes_axis": t("Bytes each step moves, MB"),
        "chart_label": t(
            "Time and bytes of each step of the run, beside three predicted lines. The table below holds the "
            "same numbers."
        ),
        "scale": t("Scale of the time axis"),
        "linear": t("linear"),
        "log": t("logarithmic"),
        "writing": t("What the model writes"),
        "idle": t("Nothing has run yet. Press Run."),
        "opening": t("Opening the run."),
        "left": t("about {seconds} s left"),
        "running": t("Step {step} of at most {length}; the last one took {time}."),
        "reconnecting": t("The connection was lost; trying again."),
        "no_chart": t("The chart could not be loaded; reload the page."),
        "progress": t("Progress"),
        "prefill": t("prefill"),
        "decode": t("decode"),
        "expected": t("expected"),
        "roof": t("measured roof, least time"),
        "floor": t("datasheet floor"),
        **kind_names(t),
        "about_prefill": t(terms.PREFILL),
        "about_decode": t(terms.DECODE),
        "about_expected": t.paragraph(
            [
                t(terms.EXPECTED),
                t("Scaled by how much slower or faster it read these weights and multiplied right before the run."),
            ]
        ),
        "about_roof": t(terms.ROOF_OF_TIME),
        "about_floor": t(terms.FLOOR),
        **{f"about_{kind}": t(term) for kind, term in KIND_TERMS.items()},
        "hover_prefill": t("Prefill: {tokens} tokens in {time}"),
        "hover_decode": t("Step {index}, decode at context {context}: {time}"),
        "hover_bytes": t("Step {index}: {total} moved"),
        "binds_memory": t("Memory binds: reading takes {roof}, the arithmetic {other}, {times} times less."),
        "binds_compute": t("Arithmetic binds: it takes {roof}, reading {other}, {times} times less."),
        "binds_memory_only": t("Memory binds: reading takes longer than the arithmetic."),
        "binds_compute_only": t("Arithmetic binds: it takes longer than reading."),
        "binds_launches": t("Launching binds: starting the operations takes longer than reading or arithmetic."),
        "beats_roof": t("Faster than the measured roof: the clock or the bytes are off."),
        "beats_datasheet": t("Faster than the data sheet allows: the clock or the bytes are off."),
        "disturbed": t("The machine was disturbed during this run."),
        "flagged": t("faster than it can be"),
        "about_flagged": t(terms.FLAGGED),
    }
