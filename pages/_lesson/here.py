"""What a step's measured numbers come from, said in full: which run, which machine, which matrix, and whose ridge."""

from __future__ import annotations

from typing import Any

from engine import shapes
from engine.record import Run
from engine.request import DTYPES
from engine.sweeps import SweepRecord
from pages._lesson import doubts
from pages._lesson.known import Known
from pages._parts import ridge_words, runs, session
from pages._parts.doubts import sentence
from pages._parts.links import build_link
from pages._parts.words import Words

OF_THE_RUN = ("question", "request", "where-it-fails", "two-phases")
OF_THE_RIDGE = ("roofline", "two-phases", "one-matrix", "batch")


def here(t: Words, step: str, known: Known) -> dict[str, Any] | None:
    """A line for the card: sentences, and the run to open where there is one; None where a step measures nothing."""
    run = known.run if step in OF_THE_RUN and known.phases is not None else None
    said = []
    if run is not None:
        said += [_run(t, run), sentence(t, doubts.of_run(run))]
    if step == "one-matrix":
        said += [_matrix(t, known), sentence(t, doubts.of_matrix(known) if known.matrix else None)]
    if step == "batch":
        said += [_batch(t, known.sweep), sentence(t, doubts.of_experiment(known.sweep))]
    if step in OF_THE_RIDGE:
        said += [ridge_words.machine(t, known.ceilings), ridge_words.why(t) if step != "two-phases" else ""]
    text = t.paragraph(said)
    if not text:
        return None
    link = build_link(session.base_path(), page="steps", run=run.id, language=t.language) if run else None
    return {"text": text, "link": link}


def _run(t: Words, run: Run) -> str:
    """The run on show: whose, of what, when."""
    device = run.device.name if run.device else "?"
    dtype = DTYPES.get(run.request.dtype or "", "") or (run.model.dtype if run.model else "")
    said = {
        "model": run.request.model,
        "dtype": dtype,
        "device": device,
        "when": t.day(run.created_at),
        "prompt": t.number(run.steps[0].tokens // run.request.batch),
        "written": t.number(len(run.steps)),
    }
    if runs.elsewhere(run):
        return t(
            "“The run on show” is a recorded one: {model} in {dtype} on {device}, {when}, {prompt} tokens read and "
            "{written} written. Once you have pressed Run on *Live run*, it is yours.",
            **said,
        )
    return t(
        "“The run on show” was measured here: {model} in {dtype} on {device}, {when}, {prompt} tokens read and "
        "{written} written.",
        **said,
    )


def _matrix(t: Words, known: Known) -> str:
    """Where the ratio of the matrix comes from, and its knee where it has one."""
    shape = known.shape
    if shape is None or known.matrix is None:
        if known.matrix is None:
            return ""
        if known.ceilings is None:
            return t("The matrix above was timed on the machine of the recorded run; measure the lesson's own below.")
        return t("The matrix above was timed while this machine was measured; measure the lesson's own below.")
    knee = shapes.knee_rows(shape.points)
    said = {"matrix": shape.request.matrix, "model": shape.request.model, "format": shape.request.weights}
    if knee is None:
        return t("Timed here last: {matrix} of {model} in {format}.", **said)
    return t(
        "Timed here last: {matrix} of {model} in {format}, with its knee at {rows} rows.",
        rows=t.number(knee),
        **said,
    )


def _batch(t: Words, sweep: SweepRecord | None) -> str:
    """Whether a batch was measured here."""
    if sweep is None:
        return t("No batch has been measured here yet: *Live sweeps* does it in a minute or two.")
    return t("Measured here: the batch of {model}, {when}.", model=sweep.request.model, when=t.day(sweep.created_at))
