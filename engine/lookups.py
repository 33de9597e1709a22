"""One prompt written twice: greedily, and with drafts looked up in the text. What is asked and found; no torch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from engine import lookup, request
from engine.errors import LabError
from engine.experiment import MOST, Experiment, Part, Timed
from engine.lookup import MOST_DRAFTS, Check
from engine.record import ModelFacts, RunRequest


class LookupRequest(Part):
    """What is asked. forecast: the id of the forecast this answers, if any. dtype, weights: as a run has them."""

    kind: Literal["lookup"] = "lookup"
    model: str
    prompt: str
    chat: bool = False
    max_new_tokens: int = 64
    drafts: int = 5
    dtype: str | None = None
    weights: str | None = None
    device: str | None = None
    forecast: str = ""


class LookupPoint(Timed):
    """One reading of the weights: `drafted` tokens checked, `kept` of them right, `again` asked for once more alone."""

    drafted: int = Field(ge=0)
    kept: int = Field(ge=0)
    context: int = Field(ge=1)
    again: int = Field(default=0, ge=0)

    @property
    def check(self) -> Check:
        """The same, as `engine.lookup` counts."""
        return Check(self.drafted, self.kept, self.context)


class LookupRecord(Experiment):
    """Both ways of writing the same answer, measured here in turn.

    greedy_ns: the decode steps of plain greedy decoding. same_as_greedy: whether every token was the same.
    """

    kind: Literal["lookup"] = "lookup"
    request: LookupRequest
    model: ModelFacts | None = None
    token_ids: list[int] = Field(default_factory=list)
    text: str = ""
    same_as_greedy: bool | None = None
    greedy_ns: list[Annotated[float, Field(gt=0, lt=MOST)]] = Field(default_factory=list)
    greedy_expected_ns: float | None = Field(default=None, gt=0, lt=MOST)
    points: list[LookupPoint] = Field(default_factory=list)

    @property
    def acceptance(self) -> float | None:
        """The share of drafted tokens that were kept, over the checks that were made."""
        return lookup.acceptance([point.check for point in self.points if point.time_ns is not None])

    @property
    def tokens_per_s(self) -> float | None:
        """New tokens a second with drafts, the prefill's own apart; None before any check."""
        return rate([point for point in self.points if point.time_ns is not None])

    @property
    def greedy_tokens_per_s(self) -> float | None:
        """The same without drafts."""
        return 1e9 / statistics.fmean(self.greedy_ns) if self.greedy_ns else None

    @property
    def gain(self) -> float | None:
        """How many times as many tokens a second drafts gave here."""
        with_drafts, without = self.tokens_per_s, self.greedy_tokens_per_s
        return with_drafts / without if with_drafts and without else None


def rate(points: Sequence[LookupPoint]) -> float | None:
    """Tokens a second over measured checks."""
    total_ns = sum(point.time_ns or 0.0 for point in points)
    return sum(point.check.gained for point in points) / total_ns * 1e9 if total_ns else None


def check(asked: LookupRequest) -> None:
    """Raise a LabError for the first field that cannot be measured."""
    if not 1 <= asked.drafts <= MOST_DRAFTS:
        raise LabError(
            "{what} is {value}; it has to be a whole number from {low} to {high}.",
            what="drafts",
            value=asked.drafts,
            low=1,
            high=MOST_DRAFTS,
        )
    request.check(as_run(asked))


def as_run(asked: LookupRequest) -> RunRequest:
    """The plain run of the same text."""
    return RunRequest(
        model=asked.model,
        prompt=asked.prompt,
        chat=asked.chat,
        max_new_tokens=asked.max_new_tokens,
        dtype=asked.dtype,
        weights=asked.weights,
        device=asked.device,
    )


def of_run(run: RunRequest, *, drafts: int, forecast: str = "") -> LookupRequest:
    """What a run's lever asks for."""
    return LookupRequest(
        model=run.model,
        prompt=run.prompt,
        chat=run.chat,
        max_new_tokens=run.max_new_tokens,
        drafts=drafts,
        dtype=run.dtype,
        weights=run.weights,
        device=run.device,
        forecast=forecast,
    )
