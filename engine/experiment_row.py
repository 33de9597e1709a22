"""One line of a list of experiments, as the store keeps it beside each record."""

from __future__ import annotations

from pydantic import BaseModel

from engine.experiment import Kind
from engine.experiment_record import AnyRecord
from engine.imported import imported_at
from engine.shapes import ShapeRequest
from engine.sweeps import SweepRequest


class ExperimentRow(BaseModel):
    """One experiment in a list. what: its matrix, or the axis of its sweep. belongs_to: a forecast or a run."""

    id: str
    created_at: str
    kind: Kind
    state: str
    model: str
    what: str
    format: str = ""
    device: str | None = None
    points: int = 0
    belongs_to: str = ""
    imported: bool = False

    @classmethod
    def of(cls, record: AnyRecord) -> ExperimentRow:
        """The row of one record."""
        request = record.request
        return cls(
            id=record.id,
            created_at=record.created_at,
            kind=record.kind,
            state=record.state,
            model=request.model,
            what=_what(record),
            format=getattr(request, "weights", None) or getattr(request, "dtype", None) or "",
            belongs_to=getattr(request, "forecast", "") or getattr(request, "run", ""),
            device=record.device.name if record.device else None,
            points=sum(1 for point in record.points if point.time_ns is not None),
            imported=imported_at(record) is not None,
        )


def _what(record: AnyRecord) -> str:
    asked = record.request
    if isinstance(asked, ShapeRequest):
        return asked.matrix
    return asked.axis if isinstance(asked, SweepRequest) else asked.kind
