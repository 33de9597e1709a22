"""What every record from a file is checked for, whatever it records: JSON of this schema with finite numbers, a date
that can be, and ceilings that could have been measured. Knows nothing of runs or experiments.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NoReturn

from pydantic import BaseModel

from engine.ceilings import Ceilings
from engine.errors import LabError
from engine.judging import ceilings_spreads
from engine.record import SCHEMA, now

AHEAD = timedelta(days=1)
MOST_SPREAD = 1e6
MOST_PER_S = 1e21
MOST = 1e21
"""No count of a step is larger."""
MOST_NS = 1e15
"""11 days: no step, product or preparation takes longer."""
_CONFIG, _MOST_OF_CONFIG = "config", 1e39  # a model's own file may name the least number of fp32


def document(content: bytes) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        LabError: it is no JSON, holds numbers that are none, or is of another schema.
    """
    try:
        found = json.loads(content, parse_constant=_refuse_number, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise LabError("The file is not JSON; import what the page's JSON download or `runs export` wrote.") from error
    if not isinstance(found, dict) or "schema" not in found:
        raise LabError("The file is JSON but not a record of this lab: it has no field named schema.")
    if found["schema"] != SCHEMA:
        raise LabError(
            "The record has schema {found}; this version of the lab reads schema {known}.",
            found=json.dumps(found["schema"])[:40],
            known=SCHEMA,
        )
    _check_values(found)
    return found


def _check_values(document: dict[str, Any]) -> None:
    """Raise LabError for the first number that could not even be drawn and the first text that cannot be written.

    Without recursion: a file may be nested as deep as its reader allows.
    """
    left: list[tuple[str, float, Any]] = [("", MOST, document)]
    while left:
        place, most, value = left.pop()
        if isinstance(value, dict):
            for key, each in value.items():
                _check_text(place or "schema", key)
                limit = MOST_NS if key.endswith("_ns") else _MOST_OF_CONFIG if key == _CONFIG else most
                left.append((f"{place}.{key}".lstrip("."), limit, each))
        elif isinstance(value, list):
            left += [(f"{place}.{index}", most, each) for index, each in enumerate(value)]
        elif isinstance(value, str):
            _check_text(place, value)
        elif isinstance(value, int | float):
            _check_number(place, value, most)


def _check_number(place: str, value: float, most: float) -> None:
    if not -most <= value <= most:
        raise LabError(
            "The record's field {field} is wrong: {value} is more than any machine could measure or count there.",
            field=place[-100:],
            value=str(value)[:20],
        )


def _check_text(place: str, text: str) -> None:
    if text.isascii():
        return
    code = next((each for each in text if "\ud800" <= each <= "\udfff"), None)
    if code is not None:
        raise LabError(
            "The record's field {field} is wrong: it holds half of a character (a lone surrogate, {code}).",
            field=place[-100:],
            code=f"U+{ord(code):04X}",
        )


def imported_at(record: BaseModel) -> str | None:
    """When a record was taken in from a file, or None when it was measured by this lab."""
    value = (record.model_extra or {}).get("imported_at")
    return value if isinstance(value, str) else None


def check_moment(text: str) -> None:
    """Raise LabError unless `text` is a moment as the lab writes it, and not one to come: lists sort by it as text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() != timedelta(0) or len(text) > len(now()):
        raise LabError(
            "The record was made at {moment}, which is not a moment like {example}.", moment=text[:40], example=now()
        )
    # Clocks differ; but what comes from the future would head every list for ever.
    if moment > datetime.now(UTC) + AHEAD:
        raise LabError("The record was made at {moment}, which is still to come; check its date.", moment=text)


def check_ceilings(ceilings: Ceilings | None) -> None:
    """Raise LabError unless a record can be compared with the ceilings it brought, if it brought any."""
    if ceilings is None:
        return
    sizes = [point.working_set_bytes for point in ceilings.bandwidth]
    if not sizes:
        raise LabError("The record's ceilings hold no read bandwidth, so that nothing can be compared with them.")
    spreads = [*ceilings_spreads(ceilings), *(point.spread for point in ceilings.linear)]
    spreads += [*(point.spread for point in ceilings.small_ops), *ceilings.peak_spreads.values()]
    rates = [*ceilings.peak_flops_per_s.values(), *(point.bytes_per_s for point in ceilings.bandwidth)]
    is_growing = sizes[0] >= 1 and all(low < high for low, high in pairwise(sizes))
    if not is_growing or not all(0 <= each <= MOST_SPREAD for each in spreads) or not all(map(_is_rate, rates)):
        raise LabError("The record's ceilings hold a size, a rate or a spread that no machine can have.")


def _is_rate(per_s: float) -> bool:
    return 0 < per_s < MOST_PER_S


def _refuse_number(text: str) -> NoReturn:
    raise LabError("The file holds {value} where a number has to be.", value=text[:40])


def _finite(text: str) -> float:
    """1e999 is good JSON, and infinity to Python."""
    value = float(text)
    return value if math.isfinite(value) else _refuse_number(text)
