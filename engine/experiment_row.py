"""One line of a list of experiments, as the store keeps it beside each record."""

from __future__ import annotations

from pydantic import BaseModel

from engine.experiment import Kind
from engine.experiment_record import AnyRecord, imported_at


class ExperimentRow(BaseModel):
    """One experiment in a list. what: its matrix, or the axis of its sweep."""

    id: str
    created_at: str
    kind: Kind
    state: str
    model: str
    what: str
    format: str = ""
    device: str | None = None
    points: int = 0
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
            what=request.matrix if request.kind == "shape" else request.axis,
            format=request.weights if request.kind == "shape" else request.dtype or "",
            device=record.device.name if record.device else None,
            points=sum(1 for point in record.points if point.time_ns is not None),
            imported=imported_at(record) is not None,
        )
