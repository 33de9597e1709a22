"""A frozen dataclass of controls from a URL's parameters, and back. Pure: no Streamlit, never raises.

What a value may be, each page's own dataclass says; how it is read, clamped and written is the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar
from urllib.parse import urlencode

VERSION = 1
"""In every link; raised when a parameter changes its meaning."""

View = TypeVar("View")
Ends = tuple[float, float]


def read(view: View, query: Mapping[str, Any], parse: Callable[[str, Any, str], Any]) -> View:
    """`view` with what the query says, field by field.

    Args:
        view: an instance of a dataclass whose field names are the URL's parameter names.
        query: parameters; what is no text (repeated ones, say) is not looked at.
        parse: from a name, its default and the URL's text to the value; the default where the text makes no sense.
    """
    for field in fields(view):  # type: ignore[arg-type]
        raw = query.get(field.name)
        if isinstance(raw, str):
            view = replace(view, **{field.name: parse(field.name, field.default, raw)})  # type: ignore[type-var]
    return view


def misread(view: object, query: Mapping[str, Any]) -> list[str]:
    """The parameters whose text stands for another value than `view`, read from it, has: clamped, or of no sense."""
    said = {field.name: query[field.name] for field in fields(view) if field.name in query}  # type: ignore[arg-type]
    return [name for name, raw in said.items() if not _says(raw, getattr(view, name))]


def _says(raw: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return str(raw).lower() in ("1", "0", "true", "false")
    if isinstance(value, int | float):
        return bool(number(float("nan"), str(raw), (-math.inf, math.inf)) == value)
    return bool(raw == write(value))


def number(default: Any, raw: str, ends: Ends) -> Any:
    """A number of the default's type, clamped to its ends; the default where there is none."""
    try:
        value = float(raw)
    except ValueError:
        return default
    if not math.isfinite(value):
        return default
    low, high = ends
    clamped = min(max(value, low), high)
    return int(clamped) if isinstance(default, int) else clamped


def write(value: Any) -> str:
    """A value as a URL carries it; `read` gives the same value back."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return str(value)


def link(base: str, page: str, query: Mapping[str, str]) -> str:
    """An absolute address of a page of the lab at `base`."""
    address = f"{base.rstrip('/')}/{page.lstrip('/')}"
    return f"{address}?{urlencode(query)}" if query else address
