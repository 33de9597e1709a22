"""Experiments of every kind as one type, and as files: JSON in and out, CSV out.

What comes in was measured on another machine, or typed by hand: it is checked as far as it can be from itself, and
keeps a mark (`imported_at`) so that a page never shows it as measured here.
"""

from __future__ import annotations

import csv
import io
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from engine import lever_record
from engine.errors import LabError
from engine.experiment import Timed, flags
from engine.imported import MOST_NS, check_ceilings, check_moment, document
from engine.ledger import Formats
from engine.lever_record import LeversRecord
from engine.lookups import LookupPoint, LookupRecord, LookupRequest
from engine.record import now
from engine.request import DTYPES
from engine.shapes import ShapePoint, ShapeRecord, ShapeRequest
from engine.sweeps import SweepPoint, SweepRecord, SweepRequest

Request = Annotated[ShapeRequest | SweepRequest | LookupRequest, Field(discriminator="kind")]
Record = Annotated[ShapeRecord | SweepRecord | LookupRecord | LeversRecord, Field(discriminator="kind")]
AnyRecord = ShapeRecord | SweepRecord | LookupRecord | LeversRecord
AnyRequest = ShapeRequest | SweepRequest | LookupRequest

_RECORDS: TypeAdapter[AnyRecord] = TypeAdapter(Record)
MAX_FILE_BYTES = 4_000_000


def from_json(document: str | bytes) -> AnyRecord:
    """A record as the store keeps it; pydantic's ValidationError when it is none."""
    return _RECORDS.validate_json(document)


def read(content: bytes) -> AnyRecord:
    """The experiment in an exported JSON document, marked as imported.

    Raises:
        LabError: one sentence for the first thing that is wrong with it.
    """
    if len(content) > MAX_FILE_BYTES:
        raise LabError("The file is larger than {limit} MB; no experiment is.", limit=f"{MAX_FILE_BYTES / 1e6:.0f}")
    found = document(content)
    if "kind" not in found and "steps" in found:
        raise LabError("The file holds a run, not an experiment: open it on Live run, or with `runs import`.")
    if not isinstance(found.get("kind"), str):
        raise LabError("The file is JSON but not an experiment of this lab: it has no field named kind.")
    try:
        record = _RECORDS.validate_python({**found, "imported_at": now()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise LabError(
            "The experiment's field {field} is wrong: {reason}.",
            field=".".join(str(part) for part in first["loc"]) or "kind",
            reason=first["msg"].removeprefix("Value error, ").rstrip("."),
        ) from error
    _check(record)
    for point in record.points:  # a file that says less than its own numbers do is not believed
        point.flags = flags(point, record.ceilings, _computed_in(record))
    return record


def measured(record: AnyRecord) -> int:
    """How many of its points were measured."""
    return sum(1 for point in record.points if point.time_ns is not None)


def asked(record: AnyRecord) -> int:
    """How many points were asked for: those that were left out, or never predicted, among them."""
    request = record.request
    if isinstance(request, ShapeRequest):
        return len(set(request.rows))
    return len(set(request.values)) if isinstance(request, SweepRequest) else len(record.points)


def holds_experiment(content: bytes) -> bool:
    """Whether a file is to be read as an experiment, not as a run; False where it is neither."""
    try:
        found = document(content)
    except LabError:
        return False
    return "kind" in found and "steps" not in found


def _check(record: AnyRecord) -> None:
    if record.state == "running":
        raise LabError("The experiment had not ended when it was exported; export it again.")
    check_moment(record.created_at)
    check_ceilings(record.ceilings)
    for point in record.points:
        at = _at(point)
        lines = point.predicted_ns
        times = [lines.measured_roof, lines.datasheet or 1.0, lines.expected or 1.0, point.time_ns or 1.0]
        amounts = [point.moved_bytes, point.flops]
        if isinstance(point, LookupPoint):
            amounts.append(1 + point.drafted - point.kept)
        if min(amounts) <= 0 or not all(0 < each < MOST_NS for each in times):
            raise LabError("The point at {at} has a time or an amount that no machine can have.", at=at)
    places = [_at(point) for point in record.points]
    if not isinstance(record, LeversRecord) and len(set(places)) < len(places):
        raise LabError("The experiment has several points at the same place; each place is measured once.")
    if isinstance(record, ShapeRecord):
        _check_counts(record)
    if isinstance(record, LeversRecord):
        lever_record.check(record)


def _computed_in(record: AnyRecord) -> str:
    """What was computed in, as `Formats.multiplication` names it."""
    if isinstance(record, ShapeRecord):
        return record.dtype
    model = record.model if isinstance(record, SweepRecord | LookupRecord) else None
    dtype = DTYPES.get((model.dtype if model else getattr(record.request, "dtype", None)) or "", "fp32")
    return Formats.engine(dtype, getattr(record.request, "weights", None)).multiplication


def _at(point: Timed) -> int:
    """What tells a point from the others of its record."""
    if isinstance(point, ShapePoint):
        return point.rows
    if isinstance(point, SweepPoint):
        return point.value
    return point.context if isinstance(point, LookupPoint) else 0


def _check_counts(record: ShapeRecord) -> None:
    """FLOPs anyone can compute from the shape have to be those the record holds."""
    for point in record.points:
        if point.flops != 2 * point.rows * record.k * record.n:
            raise LabError(
                "The point at {at} says {flops} FLOPs; a matrix of {k} x {n} takes {right}.",
                at=point.rows,
                flops=point.flops,
                k=record.k,
                n=record.n,
                right=2 * point.rows * record.k * record.n,
            )


# ---- CSV -----------------------------------------------------------------------------------------


def to_csv(record: AnyRecord) -> str:
    """One row a point; units are in the column names. A point that was not measured has an empty time."""
    out = io.StringIO()
    rows = [_row(record, point) for point in record.points]
    writer = csv.DictWriter(out, list(rows[0]) if rows else ["experiment_id", "kind"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _row(record: AnyRecord, point: Timed) -> dict[str, object]:
    row: dict[str, object] = {"experiment_id": record.id, "kind": record.kind}
    if isinstance(point, ShapePoint):
        row |= {"rows": point.rows}
    elif isinstance(point, SweepPoint):
        row |= {name: getattr(point, name) for name in ("value", "phase", "batch", "tokens", "context")}
    elif isinstance(point, LookupPoint):
        row |= {name: getattr(point, name) for name in ("drafted", "kept", "context", "again")}
    return row | {
        "time_ns": point.time_ns,
        "spread": point.spread if point.time_ns is not None else None,
        "samples": point.samples,
        "flops": point.flops,
        "moved_bytes": point.moved_bytes,
        "predicted_datasheet_ns": point.predicted_ns.datasheet,
        "predicted_measured_roof_ns": point.predicted_ns.measured_roof,
        "predicted_expected_ns": point.predicted_ns.expected,
        "flags": " ".join(point.flags),
    }
