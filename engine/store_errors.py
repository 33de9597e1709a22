"""What a database says when it fails, turned into one sentence that says what to do.

Knows SQLite's and psycopg's messages; anything else is said as the database said it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from engine.errors import LabError

_FULL = ("disk is full", "disk i/o error", "no space left", "could not extend file", "file too large", "disk full")
_UNWRITABLE = ("readonly database", "unable to open database", "permission denied", "read-only transaction")
_CORRUPT = ("not a database", "malformed", "file is encrypted")
_BUSY = ("database is locked", "database table is locked")
_UNREACHABLE = ("connection", "could not translate host", "timeout expired", "name or service", "resolve host")


@contextmanager
def clear_errors(url: URL) -> Iterator[None]:
    """Raise a LabError in place of whatever the database, its driver or the file system raises inside."""
    try:
        yield
    except SQLAlchemyError as error:
        raise explain(error, url) from error
    except OSError as error:
        raise _unwritable(url, error.strerror or str(error)) from error


def explain(error: SQLAlchemyError, url: URL) -> LabError:
    """The sentence for one database error; the URL is shown without its password."""
    cause = str(error.orig if isinstance(error, DBAPIError) and error.orig is not None else error)
    reason = " ".join(cause.split())[:300].rstrip(".")
    said = reason.lower()
    where = shown(url)
    if any(sign in said for sign in _FULL):
        return LabError(
            "The disk that holds the store of runs ({where}) is full: nothing was written; make room on it.",
            where=where,
        )
    if any(sign in said for sign in _CORRUPT):
        return LabError(
            "{where} is not a readable store of runs (the file is damaged or something else): "
            "move it away, and the lab starts a new one.",
            where=where,
        )
    if any(sign in said for sign in _BUSY):
        return LabError("The store of runs ({where}) is held by another program; try again in a moment.", where=where)
    if any(sign in said for sign in _UNWRITABLE):
        return _unwritable(url, reason)
    if any(sign in said for sign in _UNREACHABLE):
        return LabError(
            "The store of runs ({where}) cannot be reached ({reason}): check ROOFLINE_LAB_STORE and that the "
            "database server runs.",
            where=where,
            reason=reason,
        )
    return LabError("The store of runs ({where}) failed: {reason}.", where=where, reason=reason)


def shown(url: URL) -> str:
    """The store's address as a person may see it: a file's path, or the URL without its password."""
    if url.get_backend_name() == "sqlite":
        return url.database or "memory"
    return url.render_as_string(hide_password=True)


def _unwritable(url: URL, reason: str) -> LabError:
    return LabError(
        "The store of runs ({where}) cannot be written ({reason}): make the folder writable, "
        "or name another place in ROOFLINE_LAB_STORE.",
        where=shown(url),
        reason=reason,
    )
