"""Files written by hand in TOML: reading one, and what its types refuse as one sentence for its author."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from engine.errors import LabError

MAX_FILE_KIB = 64


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        LabError: it cannot be read, is too long to be written by hand, or is not TOML.
    """
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_FILE_KIB * 1024 + 1)
    except OSError as error:
        reason = (error.strerror or "unknown").lower()
        raise LabError("The file {file} cannot be read: {reason}.", file=str(path), reason=reason) from None
    if len(content) > MAX_FILE_KIB * 1024:
        raise LabError("{file} is larger than {limit} KiB.", file=path.name, limit=MAX_FILE_KIB)
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError:
        raise LabError("{file} is not text in UTF-8; it has to be TOML.", file=path.name) from None
    except tomllib.TOMLDecodeError as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise LabError("{file} is not TOML: {reason}.", file=path.name, reason=reason) from None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely misspells."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)), None)


def explain(
    refused: ValidationError, file: str, models: Mapping[str, type[BaseModel]], examples: Mapping[str, str]
) -> LabError:
    """The first thing the types refuse, as a sentence.

    models: the type at "" and those of its tables, by their key. examples: how each key is written.
    """
    # A misspelt key also leaves one missing: the misspelling is the cause, so it is told first.
    error = min(refused.errors(), key=lambda e: e["type"] != "extra_forbidden")
    key = ".".join(str(part) for part in error["loc"] if part != "[key]")
    table = str(error["loc"][0]) if error["loc"] else ""
    last = next((str(part) for part in reversed(error["loc"]) if isinstance(part, str)), "")
    example = examples.get(last, f'{last} = "..."')
    if error["type"] == "extra_forbidden":
        return _unknown_key(last, key, models[table if table in models else ""], file)
    if error["type"] == "missing":
        return LabError("{file} lacks {key}; it is written as {example}.", file=file, key=key, example=example)
    return _wrong_value(error, key, example, file)


def _unknown_key(name: str, key: str, model: type[BaseModel], file: str) -> LabError:
    near = nearest(name, model.model_fields)
    if near:
        return LabError("{file} has an unknown key {key}; is {near} meant?", file=file, key=key, near=near)
    keys = ", ".join(model.model_fields)
    return LabError("{file} has an unknown key {key}; the keys are {keys}.", file=file, key=key, keys=keys)


def _wrong_value(error: ErrorDetails, key: str, example: str, file: str) -> LabError:
    value = _shown(error["input"])
    limits = error.get("ctx", {})
    if error["type"] == "literal_error" and error["loc"][-1] == "[key]":
        known = str(limits["expected"])
        return LabError("{file} has no place for {key}; it can be {known}.", file=file, key=key, known=known)
    if error["type"] == "literal_error":
        known = str(limits["expected"])
        return LabError("{key} in {file} is {value}; it can be {known}.", key=key, file=file, value=value, known=known)
    if error["type"] == "greater_than":
        least = limits["gt"]
        return LabError(
            "{key} in {file} is {value}; it has to be more than {limit:g}.",
            key=key,
            file=file,
            value=value,
            limit=least,
        )
    if error["type"] == "greater_than_equal":
        least = limits["ge"]
        return LabError(
            "{key} in {file} is {value}; it has to be at least {limit:g}.", key=key, file=file, value=value, limit=least
        )
    if error["type"] == "less_than_equal":
        most = limits["le"]
        return LabError(
            "{key} in {file} is {value}; it can be {limit:g} at most.", key=key, file=file, value=value, limit=most
        )
    return LabError(
        "{key} in {file} is {value}; it is written as {example}.", key=key, file=file, value=value, example=example
    )


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
