"""The text of a run as its tokens come. Knows tokens and a tokenizer's stream, nothing of models or clocks."""

from __future__ import annotations

from time import perf_counter_ns

from engine.generate import RawStep, StoppedBy
from engine.record import Output
from engine.tokenizer import Stream


class Answer:
    """The first sequence's text as it grows, until its end of sequence: the others may write on."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._text: list[str] = []
        self._ids: list[int] = []
        self._ended = False
        self._stopped_by: StoppedBy | None = None

    def add(self, raw: RawStep) -> tuple[str, int]:
        """Take a step's token; return the text it adds and the time that took, in ns."""
        self._stopped_by = raw.stopped_by
        if self._ended:
            return "", 0
        started = perf_counter_ns()
        piece = self._stream.push(raw.token_ids[0])
        self._ended = raw.ended[0]
        if self._ended or raw.stopped_by:
            piece += self._stream.flush()
        elapsed_ns = perf_counter_ns() - started
        self._text.append(piece)
        self._ids.append(raw.token_ids[0])
        return piece, elapsed_ns

    @property
    def output(self) -> Output:
        """As a record keeps it."""
        return Output(text="".join(self._text), token_ids=list(self._ids), stopped_by=self._stopped_by)
