"""Which database a URL means, and how the lab opens it: SQLite in WAL mode, or PostgreSQL.

Knows nothing of runs. Every failure but a wrong URL is left to `engine.store_errors`.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, MetaData, create_engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.schema import CreateIndex, CreateTable

from engine.errors import LabError

BUSY_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5
_SCHEMA_LOCK = 295_618  # any number, as long as every process of the lab takes the same


def parse_url(url: str) -> URL:
    """The URL of a database the lab can use.

    Raises:
        LabError: it is no URL, names another kind of database, or a database in memory.
    """
    # Hosting services still hand out the old scheme that SQLAlchemy dropped.
    wanted = url.replace("postgres://", "postgresql://", 1) if url.startswith("postgres://") else url
    try:
        parsed = make_url(wanted)
    except (ArgumentError, ValueError) as error:
        raise LabError(
            "ROOFLINE_LAB_STORE is not the URL of a database; it looks like sqlite:///path/to/lab.db "
            "or postgresql://user:password@host/name."
        ) from error
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend != "sqlite":
        raise LabError("The lab keeps its runs in SQLite or PostgreSQL; {kind} is neither.", kind=backend)
    if parsed.database in (None, "", ":memory:"):
        raise LabError("A store in memory would be lost with each process; name a file: sqlite:///path/to/lab.db.")
    return parsed


def connect_to(url: URL) -> Engine:
    """An engine for the URL; opens nothing yet.

    Raises:
        LabError: the driver for PostgreSQL is not installed.
    """
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S}, max_overflow=30)
        event.listen(engine, "connect", _set_up_sqlite)
        return engine
    try:
        return create_engine(url, connect_args={"connect_timeout": CONNECT_TIMEOUT_S}, pool_pre_ping=True)
    except ModuleNotFoundError as error:
        raise LabError("A store in PostgreSQL needs its driver: pip install 'roofline-lab[postgres]'.") from error


def create_tables(engine: Engine, metadata: MetaData) -> None:
    """Create what is missing; several processes may do this at the same moment."""
    if engine.url.get_backend_name() == "sqlite":
        assert engine.url.database is not None
        Path(engine.url.database).expanduser().parent.mkdir(parents=True, exist_ok=True)
    with engine.begin() as connection:
        if engine.url.get_backend_name() == "postgresql":
            # CREATE TABLE IF NOT EXISTS alone can still collide with itself in PostgreSQL's catalogue.
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _SCHEMA_LOCK})
        for table in metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            for index in table.indexes:
                connection.execute(CreateIndex(index, if_not_exists=True))


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    """Readers beside a writer, and a commit that survives a power cut."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            break
        except sqlite3.OperationalError as error:
            # Switching a new file to WAL does not wait for the lock as other statements do.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    connection.execute("PRAGMA synchronous=FULL")
