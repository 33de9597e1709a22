"""An experiment while it is being made, as the web process holds it: what the engine last said of it, and its end."""

from __future__ import annotations

from pydantic import BaseModel

from engine import __version__
from engine.ceilings import Ceilings
from engine.errors import Sentence
from engine.experiment_record import AnyRecord, AnyRequest
from engine.lookups import LookupRecord
from engine.protocol import ExperimentJob
from engine.record import FinalState, Progress, now
from engine.shapes import ShapeRecord
from engine.sweeps import SweepRecord
from engine.tasks import Task, TaskState

RECORDS: dict[str, type[ShapeRecord] | type[SweepRecord] | type[LookupRecord]] = {
    "shape": ShapeRecord,
    "sweep": SweepRecord,
    "lookup": LookupRecord,
}


class ExperimentView(BaseModel):
    """An experiment as a page shows it. `record` holds the points so far, and is final once `ended`.

    owner: None for one that came from the store.
    """

    id: str
    owner: str | None
    state: TaskState
    progress: Progress | None = None
    record: AnyRecord | None = None
    notice: Sentence | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state not in ("queued", "running")


class ExperimentTask(Task):
    """One experiment from asked to kept. Its record survives the engine: what was said of it last is closed here."""

    def __init__(self, owner: str, request: AnyRequest) -> None:
        super().__init__("experiment", owner, model=request.model, device=request.device)
        self.request = request
        self.created_at = now()
        self._record: AnyRecord | None = None
        self._notice: Sentence | None = None

    def job(self, ceilings: Ceilings | None, *, allow_paths: bool) -> ExperimentJob:
        """What the worker needs to hear."""
        return ExperimentJob(
            id=self.id,
            created_at=self.created_at,
            request=self.request,
            ceilings=ceilings,
            allow_paths=allow_paths,
        )

    def recorded(self, record: AnyRecord) -> None:
        """The engine said how far it is."""
        with self._changed:
            self._record = record
            self._changed.notify_all()

    def closed(self, state: FinalState, error: Sentence | None) -> AnyRecord:
        """The record of what is known, ended: the last the engine said, or an empty one."""
        with self._changed:
            if self._record is not None:
                return self._record.model_copy(update={"state": state, "error": error})
        kept = {"id": self.id, "state": state, "created_at": self.created_at, "package_version": __version__}
        values = {"schema": 1, **kept, "request": self.request, "error": error}
        return RECORDS[self.request.kind].model_validate(values)

    def kept(self, record: AnyRecord, notice: Sentence | None) -> None:
        """It has ended; `notice` says why it could not be stored, if it could not."""
        with self._changed:
            self._record, self._notice = record, notice
        self.end("done" if record.state == "running" else record.state, record.error)

    def experiment_view(self) -> ExperimentView:
        """How it stands."""
        now_ = self.view()
        with self._changed:
            return ExperimentView(
                id=self.id,
                owner=self.owner,
                state=now_.state,
                progress=now_.progress,
                record=self._record,
                notice=self._notice,
            )
