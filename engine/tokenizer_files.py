"""The files of a folder that say how its text becomes tokens, read with one sentence for each that cannot be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine.chat import token_text
from engine.errors import LabError

FILES = ("tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json", "chat_template.jinja")
"""All that a tokenizer is made of; when none has changed, neither has it."""


def read(path: Path) -> Tokenizer:
    """The library's tokenizer of a tokenizer.json.

    Raises:
        LabError: no such file, or one that the library refuses.
    """
    if not path.is_file():
        raise LabError("{folder} has no tokenizer.json, so text cannot become tokens.", folder=str(path.parent))
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise LabError(
            "{path} is not a tokenizer that can be read ({reason}).", path=str(path), reason=str(error)[:200]
        ) from error


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object; empty where the file is missing or holds something else.

    Raises:
        LabError: the file is there and is not JSON.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise LabError("{path} is not valid JSON.", path=str(path)) from error
    return content if isinstance(content, dict) else {}


def eos_ids(folder: Path, inner: Tokenizer) -> list[int]:
    """Every token that ends a text, from the three files that may name one."""
    found = [*_numbers(read_json(folder / "config.json")), *_numbers(read_json(folder / "generation_config.json"))]
    named = token_text(read_json(folder / "tokenizer_config.json").get("eos_token"))
    return [*found, *(ids_of(inner, named) if named is not None else [])]


def ids_of(inner: Tokenizer, *tokens: str) -> list[int]:
    """The ids of those of the tokens that the vocabulary has."""
    ids = (inner.token_to_id(token) for token in tokens)
    return [token_id for token_id in ids if token_id is not None]


def stamps(folder: Path) -> tuple[object, ...]:
    """Size and time of change of each of FILES, to tell whether a folder is still the one that was read."""
    return tuple(_stamp(folder / name) for name in FILES)


def _numbers(config: Mapping[str, Any]) -> list[int]:
    value = config.get("eos_token_id")
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, int) and not isinstance(item, bool) and item >= 0]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_size, facts.st_mtime_ns
