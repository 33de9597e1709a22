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
    return found


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
    spreads += [point.spread for point in ceilings.small_ops]
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
