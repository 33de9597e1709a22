"""Runs and ceilings in SQL: SQLite by default, PostgreSQL by URL.

A run is written once, whole, in one transaction, and never changed. The tables hold the JSON document
of each record, plus the few columns one looks things up by, so that fields may be added to records
without touching a table. Runs that ship with the lab are found here too and need no database.

Nothing is opened before it is needed, and every failure is a LabError: a lab whose disk is full still
opens, runs and shows what it has.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy import Column, Integer, MetaData, String, Table, Text, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, Connection

from engine import recorded, settings
from engine.ceilings import Ceilings
from engine.database import connect_to, create_tables, parse_url
from engine.errors import LabError
from engine.experiment import Kind
from engine.experiment_record import AnyRecord, from_json
from engine.experiment_row import ExperimentRow
from engine.imported import imported_at
from engine.lever_outcome import marks_of
from engine.record import RUN_ID_PATTERN, FinalState, Flag, Run
from engine.store_errors import clear_errors

EXCERPT_CHARACTERS = 80

_METADATA = MetaData()
_RUNS = Table(
    "runs",
    _METADATA,
    Column("id", String(12), primary_key=True),
    Column("created_at", String(40), nullable=False, index=True),
    Column("model", Text, nullable=False),
    Column("row", Text, nullable=False),
    Column("document", Text, nullable=False),
)
_EXPERIMENTS = Table(
    "experiments",
    _METADATA,
    Column("id", String(12), primary_key=True),
    Column("created_at", String(40), nullable=False, index=True),
    Column("kind", String(20), nullable=False),
    Column("model", Text, nullable=False),
    Column("row", Text, nullable=False),
    Column("document", Text, nullable=False),
)
_CEILINGS = Table(
    "ceilings",
    _METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("key", Text, nullable=False),
    Column("document", Text, nullable=False),
)


class RunRow(BaseModel):
    """One run in a list, without its steps. forecast, lever: what it answers, if anything."""

    id: str
    created_at: str
    state: FinalState
    model: str
    weights: str | None = None
    dtype: str | None = None
    device: str | None = None
    prompt: str = ""
    prompt_tokens: int | None = None
    output_tokens: int = 0
    batch: int = 1
    tpot_p50_ms: float | None = None
    tokens_per_s: float | None = None
    flags: list[Flag] = []
    imported: bool = False
    shipped: bool = False
    forecast: str = ""
    lever: str = ""

    @classmethod
    def of(cls, run: Run, *, shipped: bool = False) -> RunRow:
        """The row of one record."""
        summary = run.summary
        forecast, lever = marks_of(run.request)
        return cls(
            id=run.id,
            created_at=run.created_at,
            state=run.state,
            model=run.request.model,
            weights=run.model.weights if run.model else None,
            dtype=run.model.dtype if run.model else None,
            device=run.device.name if run.device else None,
            prompt=run.request.prompt[:EXCERPT_CHARACTERS],
            prompt_tokens=len(run.prompt.token_ids) if run.prompt else None,
            output_tokens=len(run.output.token_ids),
            batch=run.request.batch,
            tpot_p50_ms=summary.tpot_ms.p50 if summary and summary.tpot_ms else None,
            tokens_per_s=summary.tokens_per_s if summary else None,
            flags=summary.flags if summary else [],
            imported=imported_at(run) is not None,
            shipped=shipped,
            forecast=forecast,
            lever=lever,
        )


Kept = TypeVar("Kept", bound=BaseModel)
Rows = list[RunRow]  # inside Store, the word list means its method
ExperimentRows = list[ExperimentRow]


class Store:
    """The runs and ceilings at one URL. Safe to use from any thread; several processes may share the place."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._database = connect_to(url)
        self._prepared = False
        self._preparing = threading.Lock()

    def put(self, run: Run) -> None:
        """Write one run, for good. Writing the same run again does nothing.

        Raises:
            LabError: the store cannot be written, or holds another run under this id.
        """
        if run.id not in recorded.runs() and self._insert(_RUNS, _row_of(run)):
            return
        kept = self.get(run.id)
        if kept is None or _measured(kept) != _measured(run):
            raise LabError("Another run is already kept as {id}; a record never changes once it is written.", id=run.id)

    def get(self, run_id: str) -> Run | None:
        """The run with this id, or None; what cannot be an id is None without a look at the database.

        Raises:
            LabError: the store cannot be read, or what it holds under this id is not a record this version reads.
        """
        if not is_run_id(run_id):
            return None
        if run_id in recorded.runs():
            return recorded.runs()[run_id]
        with self._transaction() as connection:
            document = connection.execute(select(_RUNS.c.document).where(_RUNS.c.id == run_id)).scalar()
        try:
            return None if document is None else Run.model_validate_json(document)
        except ValidationError as error:
            raise LabError(
                "Run {id} was kept by another version of the lab; this one cannot read it.", id=run_id
            ) from error

    def list(self, limit: int, model: str | None = None) -> Rows:
        """The newest runs first, at most `limit`; those that ship with the lab come after all others."""
        query = select(_RUNS.c.row).order_by(_RUNS.c.created_at.desc(), _RUNS.c.id).limit(limit)
        if model is not None:
            query = query.where(_RUNS.c.model == model)
        with self._transaction() as connection:
            rows = _readable(RunRow, connection.execute(query).scalars())
        return (rows + shipped(model))[:limit]

    def put_experiment(self, record: AnyRecord) -> None:
        """Write one experiment, for good. Writing the same one again does nothing.

        Raises:
            LabError: the store cannot be written, or holds another one under this id.
        """
        row = {
            "id": record.id,
            "created_at": record.created_at,
            "kind": record.kind,
            "model": record.request.model,
            "row": ExperimentRow.of(record).model_dump_json(),
            "document": record.to_json(),
        }
        if self._insert(_EXPERIMENTS, row):
            return
        kept = self.get_experiment(record.id)
        if kept is None or _measured(kept) != _measured(record):
            raise LabError(
                "Another experiment is already kept as {id}; a record never changes once it is written.", id=record.id
            )

    def get_experiment(self, experiment_id: str) -> AnyRecord | None:
        """The experiment with this id, or None; what cannot be an id is None without a look at the database.

        Raises:
            LabError: the store cannot be read, or what it holds under this id is not a record this version reads.
        """
        if not is_run_id(experiment_id):
            return None
        query = select(_EXPERIMENTS.c.document).where(_EXPERIMENTS.c.id == experiment_id)
        with self._transaction() as connection:
            document = connection.execute(query).scalar()
        try:
            return None if document is None else from_json(document)
        except ValidationError as error:
            raise LabError(
                "Experiment {id} was kept by another version of the lab; this one cannot read it.", id=experiment_id
            ) from error

    def experiments(self, kind: Kind, limit: int, model: str | None = None) -> ExperimentRows:
        """The newest experiments of a kind first, at most `limit`."""
        query = select(_EXPERIMENTS.c.row).where(_EXPERIMENTS.c.kind == kind)
        if model is not None:
            query = query.where(_EXPERIMENTS.c.model == model)
        newest = query.order_by(_EXPERIMENTS.c.created_at.desc(), _EXPERIMENTS.c.id).limit(limit)
        with self._transaction() as connection:
            return _readable(ExperimentRow, connection.execute(newest).scalars())

    def put_ceilings(self, ceilings: Ceilings) -> None:
        """Keep ceilings for their device in place of earlier ones, which live on in the runs that used them."""
        key = Ceilings.key(ceilings.device)
        with self._transaction() as connection:
            connection.execute(delete(_CEILINGS).where(_CEILINGS.c.key == key))
            connection.execute(insert(_CEILINGS).values(key=key, document=ceilings.model_dump_json()))

    def ceilings(self, key: str) -> Ceilings | None:
        """The ceilings kept for this key (see `Ceilings.key`), or None where none are that this version reads."""
        query = select(_CEILINGS.c.document).where(_CEILINGS.c.key == key).order_by(_CEILINGS.c.number.desc())
        with self._transaction() as connection:
            documents = connection.execute(query.limit(1)).scalars()
            return next(iter(_readable(Ceilings, documents)), None)

    def check_writable(self) -> None:
        """Write something and take it back; a LabError says why that does not work."""
        with self._transaction() as connection:
            connection.execute(insert(_CEILINGS).values(key="self-check", document="{}"))
            connection.rollback()

    def close(self) -> None:
        """Let go of the database's connections."""
        self._database.dispose()

    def _insert(self, table: Table, row: dict[str, str]) -> bool:
        into = postgresql.insert if self._url.get_backend_name() == "postgresql" else sqlite.insert
        with self._transaction() as connection:
            return connection.execute(into(table).values(row).on_conflict_do_nothing()).rowcount == 1

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with clear_errors(self._url):
            with self._preparing:
                if not self._prepared:
                    create_tables(self._database, _METADATA)
                    self._prepared = True
            with self._database.begin() as connection:
                yield connection


def shipped(model: str | None = None) -> list[RunRow]:
    """The runs that ship with the lab, of one model or all; needs no database."""
    chosen = [run for run in recorded.runs().values() if model in (None, run.request.model)]
    return [RunRow.of(run, shipped=True) for run in chosen]


def is_run_id(text: str) -> bool:
    """Whether this can be a run's id at all; a link may carry anything."""
    return re.fullmatch(RUN_ID_PATTERN.strip("^$"), text, re.ASCII) is not None


def open_store(url: str | None = None) -> Store:
    """The store at `url`, by default the one in the settings. Nothing is opened before it is used.

    Raises:
        LabError: the URL is none, or names a database the lab has no driver for.
    """
    return Store(parse_url(settings.store_url() if url is None else url))


def _readable(kind: type[Kept], documents: Iterable[str]) -> list[Kept]:
    """Those that this version of the lab reads: one that is damaged, or another's, keeps no others from being shown."""
    found = []
    for document in documents:
        with suppress(ValidationError):
            found.append(kind.model_validate_json(document))
    return found


def _row_of(run: Run) -> dict[str, str]:
    return {
        "id": run.id,
        "created_at": run.created_at,
        "model": run.request.model,
        "row": RunRow.of(run).model_dump_json(),
        "document": run.to_json(),
    }


def _measured(run: BaseModel) -> dict[str, Any]:
    return run.model_dump(mode="json", exclude={"imported_at"})
