"""Records in and out: a run as JSON or CSV, and a JSON file from elsewhere checked field by field.

What comes in was measured on another machine, or typed by hand: it is checked as far as it can be
from itself, and keeps a mark (`imported_at`) so that a page never shows it as measured here.
"""

from __future__ import annotations

import csv
import io
import json

from pydantic import ValidationError

from engine.errors import LabError
from engine.imported import check_ceilings, check_moment, document
from engine.imported_run import check_run, judge
from engine.record import Run, Step, now

MAX_FILE_BYTES = 50_000_000


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
    check_ceilings(run.ceilings)
    check_run(run)
    judge(run)
    return run


def _explain(error: ValidationError) -> LabError:
    first = error.errors(include_url=False)[0]
    return LabError(
        "The run's field {field} is wrong: {reason}.",
        field=".".join(str(part) for part in first["loc"]) or "run",
        reason=first["msg"].removeprefix("Value error, ").rstrip("."),
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
