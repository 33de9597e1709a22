"""A view of the lab from a URL, and the URL of a view. Pure: no Streamlit, never raises.

Everything a reader can set on *Live run* is here, except the prompt: that belongs to the run, which has
an address of its own (`?run=`). A link carries every value explicitly, so that a changed default does
not change what an old link shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.ledger.convention import LATENT_FORMS
from engine.record import RUN_ID_PATTERN, RunRequest
from engine.request import CLOCKS, LAUNCHES, NARROWER, NARROWER_KV
from pages._parts.query import VERSION, Ends, link, number, read, write
from pages._parts.words import LANGUAGES

DTYPES = ("float32", "bfloat16")
SAME = "same"
WEIGHTS = (SAME, *NARROWER["float32"])
"""What weights are held in: what is computed in, or something narrower."""
KV = (SAME, *NARROWER_KV["float32"])
"""The same for the KV cache."""
MODEL_PATTERN = r"^[A-Za-z0-9._@=:/-]{1,120}$"


def narrower(dtype: str, format_: str, choices: Mapping[str, tuple[str, ...]] = NARROWER) -> str | None:
    """The format to ask for: one narrower than the arithmetic, or None, for then it is not a choice of its own.

    choices: by what is computed in; those of weights where nothing else is said.
    """
    return format_ if format_ in choices[dtype] else None


@dataclass(frozen=True)
class View:
    """The controls of *Live run*. Names are the URL's parameter names."""

    model: str = "smollm2-135m"
    chat: bool = False
    length: int = 64
    batch: int = 1
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    dtype: str = "float32"
    weights: str = SAME
    kv: str = SAME
    latent: str = LATENT_FORMS[0]
    clock: str = CLOCKS[0]
    launches: str = LAUNCHES[0]

    def request(self, prompt: str) -> RunRequest:
        """The run these controls ask for. Weights and cache are narrower than the arithmetic, or not a choice of their
        own; only a greedy run can do without looking at its tokens.
        """
        values = asdict(self)
        held = {"weights": narrower(self.dtype, self.weights), "kv": narrower(self.dtype, self.kv, NARROWER_KV)}
        clock = self.clock if self.temperature == 0 else CLOCKS[0]
        return RunRequest(prompt=prompt, max_new_tokens=values.pop("length"), **values | held | {"clock": clock})


LIMITS: dict[str, Ends] = {
    "length": (1, 2048),
    "batch": (1, 64),
    "temperature": (0.0, 2.0),
    "top_k": (0, 1000),
    "top_p": (0.01, 1.0),
    "min_p": (0.0, 1.0),
    "seed": (0, 2**31 - 1),
}


def parse_view(query: Mapping[str, Any]) -> View:
    """The view a query string asks for. A value out of range is clamped, one that makes no sense is the default."""
    return read(View(), query, _parse)


def _parse(name: str, default: Any, raw: str) -> Any:
    if name == "model":
        return raw if re.fullmatch(MODEL_PATTERN, raw) and ".." not in raw else default
    if name == "dtype":
        return raw if raw in DTYPES else default
    if name == "weights":
        return raw if raw in WEIGHTS else default
    if name == "kv":
        return raw if raw in KV else default
    if name == "latent":
        return raw if raw in LATENT_FORMS else default
    if name == "clock":
        return raw if raw in CLOCKS else default
    if name == "launches":
        return raw if raw in LAUNCHES else default
    if name == "chat":
        return {"1": True, "true": True, "0": False, "false": False}.get(raw.lower(), default)
    return number(default, raw, LIMITS[name])


def parse_run(query: Mapping[str, Any]) -> str | None:
    """The run id a query string asks for, or None where it has none or one that no run can have."""
    raw = query.get("run")
    return raw if isinstance(raw, str) and re.fullmatch(RUN_ID_PATTERN, raw) else None


def parse_language(query: Mapping[str, Any]) -> str | None:
    """The language a query string asks for, if the lab speaks it."""
    raw = query.get("lang")
    return raw if isinstance(raw, str) and raw in LANGUAGES else None


def to_query(view: View) -> dict[str, str]:
    """Every control as a URL parameter; `parse_view` gives the same view back."""
    return {field.name: write(getattr(view, field.name)) for field in fields(View)}


def build_link(
    base: str, *, page: str = "", view: View | None = None, run: str | None = None, language: str | None = None
) -> str:
    """An absolute link to a page of the lab at `base`, with the run or the whole view in it."""
    query: dict[str, str] = {"v": str(VERSION)} if view else {}
    query |= to_query(view) if view else {}
    query |= {"run": run} if run else {}
    query |= {"lang": language} if language else {}
    return link(base, page, query)
