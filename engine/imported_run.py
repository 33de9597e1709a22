"""A run from a file against itself: what every run of this lab has to agree with, and what can be computed again.

Nothing is believed that follows from the steps and the ceilings: flags, summary and verdict are worked out anew.
"""

from __future__ import annotations

import math
from itertools import chain

from engine import hardware, request
from engine.ceilings import multiplication
from engine.errors import LabError
from engine.judging import flags, probe_moved
from engine.ledger import Formats
from engine.record import Run, Step
from engine.request import DTYPES
from engine.summary import decode_tokens_per_s, median_tpot_ms, summarise, ttft_ms

SUMMARY_TOLERANCE = 0.01  # other versions may interpolate percentiles otherwise; a forged figure is off by more


def check_run(run: Run) -> None:
    """Raise LabError for the first thing that no run of this lab could say of itself."""
    request.check(run.request)
    _check_formats(run)
    _check_machine(run)
    _check_end(run)
    _check_steps(run)
    for step in chain(run.warm_up_steps, run.steps):
        _check_step_numbers(step)
    _check_summary(run)


def judge(run: Run) -> None:
    """What is impossible or disturbed, and the summary, from the record's own numbers: a file is not believed."""
    dtype = DTYPES.get((run.model.dtype if run.model else run.request.dtype) or "", "fp32")
    computed_in = multiplication(dtype, run.request.weights)
    probe, ceilings = run.probe, run.ceilings
    if probe is not None:
        probe.moved = probe_moved(probe.before_ns, probe.after_ns)
    for step in (*run.warm_up_steps, *run.steps):
        step.flags = flags(step, ceilings, computed_in)
    if ceilings is None or not run.steps:
        run.summary = None
        return
    run.summary = summarise(
        run.steps,
        batch=run.request.batch,
        multiplication=computed_in,
        ceilings=ceilings,
        probe=probe,
        datasheet_bytes_per_s=hardware.datasheet_bandwidth(ceilings.device),
    )


def _check_formats(run: Run) -> None:
    """What the model is said to have been held in has to be what the request asked for."""
    model, asked = run.model, run.request
    if model is None:
        return
    if model.dtype not in DTYPES or asked.dtype not in (None, model.dtype):
        raise _odd_format("dtype", model.dtype)
    formats = Formats.engine(DTYPES[model.dtype], asked.weights, asked.kv)
    if model.weight_format != formats.weights:
        raise _odd_format("weight_format", model.weight_format)
    if model.kv_format != formats.kv:
        raise _odd_format("kv_format", model.kv_format)
    # What the request leaves open has to be a pair that the engine runs, too.
    request.check(asked.model_copy(update={"dtype": model.dtype}))


def _odd_format(field: str, value: str) -> LabError:
    return LabError(
        "The run's field model.{field} is {value}, which is not what its request asks this engine for.",
        field=field,
        value=value[:20],
    )


def _check_machine(run: Run) -> None:
    """Numbers of the device and the probe that cannot be below zero."""
    numbers: list[tuple[str, float | None]] = []
    if run.device is not None:
        device = run.device
        numbers += [("device.threads", device.threads - 1), ("device.cores", device.cores)]
        numbers += [("device.memory_bytes", device.memory_bytes)]
        numbers += [("device.cache_bytes", size) for size in device.cache_bytes.values()]
    if run.probe is not None:
        numbers += [("probe.load", run.probe.load), ("probe.other_cores", run.probe.other_cores)]
    for field, number in numbers:
        if number is not None and number < 0:
            raise LabError("The run's field {field} is less than a machine can have.", field=field)


def _check_end(run: Run) -> None:
    """How the run ended against the steps it has."""
    stopped_by, count, asked = run.output.stopped_by, len(run.steps), run.request.max_new_tokens
    fits = {
        "done": bool(run.steps) and run.error is None and stopped_by != "cancelled",
        "cancelled": stopped_by in (None, "cancelled"),
        "failed": run.error is not None and stopped_by is None,
    }[run.state]
    if run.state == "done" and (run.model is None or run.device is None):
        raise LabError("The run is marked as done, but does not say which model ran, and on what.")
    if not fits or count > asked or (stopped_by == "length" and count != asked):
        raise LabError(
            "The run is marked as {state} with {count} of at most {asked} steps, which does not fit with how its "
            "output ended or with its error.",
            state=run.state,
            count=count,
            asked=asked,
        )


def _check_steps(run: Run) -> None:
    for number, step in enumerate(run.steps):
        expected_phase = "prefill" if number == 0 else "decode"
        if step.index != number or step.phase != expected_phase:
            raise LabError(
                "Step {number} of the run is marked as {phase} step {index}; steps are numbered from 0, "
                "the prefill first.",
                number=number,
                phase=step.phase,
                index=step.index,
            )
        if len(step.token_ids) != run.request.batch:
            raise LabError(
                "Step {number} has {count} tokens for a batch of {batch}.",
                number=number,
                count=len(step.token_ids),
                batch=run.request.batch,
            )
    _check_positions(run)
    # In a batch the first sequence may end before the others: its output is then shorter than the run.
    written = [step.token_ids[0] for step in run.steps[: len(run.output.token_ids)]]
    if run.output.token_ids != written or bool(run.steps) != bool(written):
        raise LabError(
            "The run's output has {output} tokens that are not those of its {steps} steps.",
            output=len(run.output.token_ids),
            steps=len(run.steps),
        )


def _check_positions(run: Run) -> None:
    """The prefill reads the prompt; each later step one token more, and attends one position more."""
    prompt = len(run.prompt.token_ids) if run.prompt else run.steps[0].tokens if run.steps else 0
    for step in run.steps:
        tokens = 1 if step.index else prompt
        if step.tokens != tokens or step.context != prompt + step.index:
            raise LabError(
                "Step {number} has {tokens} tokens at a context of {context}; after a prompt of {prompt} it has "
                "{right} at {position}.",
                number=step.index,
                tokens=step.tokens,
                context=step.context,
                prompt=prompt,
                right=tokens,
                position=prompt + step.index,
            )


def _check_step_numbers(step: Step) -> None:
    if step.time_ns == 0:
        raise LabError("Step {number} took 0 ns, which no machine can.", number=step.index)
    lines = [line for line in step.predicted_ns.model_dump(include={*_LINES}).values() if line is not None]
    if min(lines) <= 0:
        raise LabError("Step {number} has a predicted time that is not above 0.", number=step.index)
    if step.resident_bytes.kv_filled > step.resident_bytes.kv_allocated:
        raise LabError("Step {number} fills more of the KV cache than is allocated.", number=step.index)
    if step.flops == 0 or step.bytes.total == 0 or step.tokens == 0:
        raise LabError("Step {number} computes or moves nothing, which no step can.", number=step.index)
    kv = step.bytes.kv_read + step.bytes.kv_write
    if step.parts.experts > step.bytes.weights or max(step.parts.window, step.parts.latent) > kv:
        raise LabError("Step {number} has a part of its bytes that is more than the whole.", number=step.index)


_LINES = ("datasheet", "measured_roof", "expected")


def _check_summary(run: Run) -> None:
    """The figures anyone can compute from the steps have to be those that the steps give."""
    if run.summary is None:
        return
    said_tpot = run.summary.tpot_ms.p50 if run.summary.tpot_ms else None
    for name, said, computed in (
        ("ttft_ms", run.summary.ttft_ms, ttft_ms(run.steps)),
        ("tpot_ms.p50", said_tpot, median_tpot_ms(run.steps)),
        ("tokens_per_s", run.summary.tokens_per_s, decode_tokens_per_s(run.steps, run.request.batch)),
    ):
        agrees = said == computed or (
            said is not None and computed is not None and math.isclose(said, computed, rel_tol=SUMMARY_TOLERANCE)
        )
        if not agrees:
            raise LabError(
                "The run's summary says {name} = {said}; its own steps give {computed}.",
                name=name,
                said=said,
                computed=computed,
            )
