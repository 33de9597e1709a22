"""Records in and out: a run as JSON or CSV, and a JSON file from elsewhere checked field by field.

What comes in was measured on another machine, or typed by hand: it is checked as far as it can be
from itself, and keeps a mark (`imported_at`) so that a page never shows it as measured here.
"""

from __future__ import annotations

import csv
import io
import json
import math

from pydantic import ValidationError

from engine.errors import LabError
from engine.imported import check_ceilings, check_moment, document
from engine.judging import flags, probe_moved, run_flags
from engine.record import Run, Step, now
from engine.request import DTYPES
from engine.summary import decode_tokens_per_s, median_tpot_ms, ttft_ms
from engine.verdict import verdict

MAX_FILE_BYTES = 50_000_000
SUMMARY_TOLERANCE = 0.01  # other versions may interpolate percentiles otherwise; a forged figure is off by more


def read_run(content: bytes) -> Run:
    """The run in an exported JSON document, marked as imported.

    Raises:
        LabError: one sentence for the first thing that is wrong with it.
    """
    if len(content) > MAX_FILE_BYTES:
        raise LabError(
            "The file holds {size} MB; an exported run has at most {limit} MB.",
            size=f"{len(content) / 1e6:.0f}",
            limit=f"{MAX_FILE_BYTES / 1e6:.0f}",
        )
    found = document(content)
    if "kind" in found and "steps" not in found:
        raise LabError(
            "The file holds an experiment, not a run: open it on Shapes or Live sweeps, or with `runs import`."
        )
    try:
        run = Run.model_validate({**found, "imported_at": now()})
    except ValidationError as error:
        raise _explain(error) from error
    check_moment(run.created_at)
    _check_steps(run)
    _check_summary(run)
    check_ceilings(run.ceilings)
    _judge(run)
    return run


def _judge(run: Run) -> None:
    """What is impossible or disturbed, from the record's own numbers: a file that says less is not believed."""
    dtype = DTYPES.get((run.model.dtype if run.model else run.request.dtype) or "", "fp32")
    probe = run.probe
    if probe is not None:
        probe = probe.model_copy(update={"moved": probe_moved(probe.before_ns, probe.after_ns)})
    for step in (*run.warm_up_steps, *run.steps):
        step.flags = flags(step, run.ceilings, dtype)
    found = run_flags(run.steps, probe, run.ceilings)
    if run.summary is None or set(found) == set(run.summary.flags):
        return
    run.summary.flags = found
    if run.ceilings is not None:
        run.summary.verdict_sentences = verdict(
            run.steps, batch=run.request.batch, dtype=dtype, ceilings=run.ceilings, probe=probe
        )
        run.summary.verdict = " ".join(map(str, run.summary.verdict_sentences))


def _explain(error: ValidationError) -> LabError:
    first = error.errors(include_url=False)[0]
    return LabError(
        "The run's field {field} is wrong: {reason}.",
        field=".".join(str(part) for part in first["loc"]) or "run",
        reason=first["msg"].removeprefix("Value error, ").rstrip("."),
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
        _check_step_numbers(step)
    # In a batch the first sequence may end before the others: its output is then shorter than the run.
    written = [step.token_ids[0] for step in run.steps[: len(run.output.token_ids)]]
    if run.output.token_ids != written or bool(run.steps) != bool(written):
        raise LabError(
            "The run's output has {output} tokens that are not those of its {steps} steps.",
            output=len(run.output.token_ids),
            steps=len(run.steps),
        )


def _check_step_numbers(step: Step) -> None:
    if step.time_ns == 0:
        raise LabError("Step {number} took 0 ns, which no machine can.", number=step.index)
    lines = [line for line in step.predicted_ns.model_dump().values() if line is not None]
    if min(lines) <= 0:
        raise LabError("Step {number} has a predicted time that is not above 0.", number=step.index)
    if step.resident_bytes.kv_filled > step.resident_bytes.kv_allocated:
        raise LabError("Step {number} fills more of the KV cache than is allocated.", number=step.index)


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


# ---- CSV -----------------------------------------------------------------------------------------

_BYTES = ("weights", "kv_read", "kv_write", "state_read", "state_write", "conv_read", "conv_write", "logits", "total")
_PARTS = ("experts", "window", "latent")  # of weights and of KV, which hold them already
_RESIDENT = ("weights", "kv_allocated", "kv_filled", "state", "conv")


def to_csv(run: Run) -> str:
    """One row a step, the warm-up's first; units are in the column names, text is quoted as in JSON.

    JSON quotes keep spaces and line breaks visible, and keep a spreadsheet from reading "=..." as a formula.
    """
    out = io.StringIO()
    run_flags = " ".join(run.summary.flags) if run.summary else ""
    steps = [("warm_up", step) for step in run.warm_up_steps] + [("measured", step) for step in run.steps]
    rows = [_csv_row(run.id, made_in, step) | {"run_flags": run_flags} for made_in, step in steps]
    header = list(rows[0]) if rows else ["run_id", "pass", "index", "phase"]
    writer = csv.DictWriter(out, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _csv_row(run_id: str, made_in: str, step: Step) -> dict[str, object]:
    row: dict[str, object] = {
        "run_id": run_id,
        "pass": made_in,
        "index": step.index,
        "phase": step.phase,
        "tokens": step.tokens,
        "context": step.context,
        "token_ids": " ".join(map(str, step.token_ids)),
        "text": json.dumps(step.text, ensure_ascii=False),
        "time_ns": step.time_ns,
        "host_ns": step.host_ns,
        "sample_ns": step.sample_ns,
        "detokenize_ns": step.detokenize_ns,
        "flops": step.flops,
    }
    row |= {f"moved_{kind}_bytes": getattr(step.bytes, kind) for kind in _BYTES}
    row |= {f"part_{part}_bytes": getattr(step.parts, part) for part in _PARTS}
    row |= {f"resident_{kind}_bytes": getattr(step.resident_bytes, kind) for kind in _RESIDENT}
    row |= {
        "predicted_datasheet_ns": step.predicted_ns.datasheet,
        "predicted_measured_roof_ns": step.predicted_ns.measured_roof,
        "predicted_expected_ns": step.predicted_ns.expected,
        "bound": step.bound,
        "flags": " ".join(step.flags),
    }
    return row
