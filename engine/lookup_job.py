"""The same answer written twice in turn: token by token, and with drafts looked up in the text and checked at once.

Greedy comes first. It says what the answer is, and from that how every draft will fare: each check is predicted
before the first is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import ledger, lookup, lookups, request
from engine import tokenizer as tokenizers
from engine.errors import LabError, Sentence
from engine.expected import Predictor
from engine.experiment import Predicted, Timed
from engine.experiment_job import MEASURING
from engine.experiment_record import AnyRecord
from engine.generate import generate, warm_up
from engine.levers import check_ns
from engine.lookup import Check
from engine.lookups import LookupPoint, LookupRecord, LookupRequest
from engine.measure import Stopped
from engine.model.decoder import Decoder
from engine.model_job import WithModel
from engine.record import FinalState
from engine.source import Source
from engine.speculation import require, speculate

ROUNDS = 2


class LookupInProgress(WithModel):
    """Both ways of writing, as far as they came."""

    _model: Decoder

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._points: list[LookupPoint] = []
        self._greedy_ns: list[float] = []
        self._greedy_expected_ns: float | None = None
        self._answer: list[int] = []
        self._written: list[int] = []
        self._text = ""
        self._same: bool | None = None

    @property
    def _asked(self) -> LookupRequest:
        assert isinstance(self._job.request, LookupRequest)
        return self._job.request

    def _prepare(self) -> list[Timed]:
        asked = self._asked
        lookups.check(asked)
        source = self._bring(lookups.as_run(asked))
        tokenizer = tokenizers.load(source)
        self._ids = tokenizer.encode_prompt(asked.prompt, chat=asked.chat)[1]
        request.check_fits(len(self._ids), source.spec.max_position)
        self._stops = tokenizer.eos_ids
        self._check_memory(source)
        self._model = require(self._load(source))
        self._teller.state("warming_up")
        for _ in warm_up(self._model, self._ids, max_new_tokens=asked.max_new_tokens, clock=self._clock):
            pass
        self._write_greedily()
        self._text = tokenizer.decode(self._answer)
        self._points = self._predict(source)
        return list(self._points)

    def _check_memory(self, source: Source) -> None:
        positions = min(len(self._ids) + self._asked.max_new_tokens + self._asked.drafts, source.spec.max_position)
        held = ledger.resident(source.spec, max_tokens=positions, formats=self._formats)
        request.check_memory(int(held.total), self._room_bytes(source))

    def _predict(self, source: Source) -> list[LookupPoint]:
        """Every check, from the answer that greedy wrote."""
        lines = self._lines(source)
        checks = lookup.foretell(self._ids, self._answer, self._asked.drafts)
        if not checks:
            raise LabError("The answer is a single token, so there is nothing to draft; choose another prompt.")
        middle = len(self._ids) + len(self._answer) // 2
        self._greedy_expected_ns = lines.decode(middle).predicted_ns.expected
        return [_point(each, lines) for each in checks]

    # ---- the clock -------------------------------------------------------------------------------

    def _rounds(self, points: list[Timed], told: Callable[[Sentence, float | None], None]) -> None:
        for number in range(ROUNDS):
            if number:
                self._write_greedily()
            told(Sentence(template=MEASURING), (number + 0.5) / ROUNDS)
            self._write_with_drafts()

    def _write_greedily(self) -> None:
        steps = generate(
            self._model,
            self._ids,
            max_new_tokens=self._asked.max_new_tokens,
            clock=self._clock,
            stop_ids=self._stops,
            should_stop=self._teller.cancelled,
        )
        made = list(steps)
        if self._teller.cancelled():
            raise Stopped
        self._answer = [step.token_ids[0] for step in made]
        self._greedy_ns += [float(step.time_ns) for step in made[1:]]

    def _write_with_drafts(self) -> None:
        written: list[int] = []
        passes = speculate(
            self._model,
            self._ids,
            max_new_tokens=self._asked.max_new_tokens,
            drafts=self._asked.drafts,
            clock=self._clock,
            stop_ids=self._stops,
            should_stop=self._teller.cancelled,
        )
        for number, each in enumerate(passes, start=-1):
            written += each.token_ids
            if 0 <= number < len(self._points):
                self._points[number].again = each.again
                self._keep(self._points[number], number, float(each.time_ns))
        if self._teller.cancelled():
            raise Stopped
        self._written = written
        self._same = written == self._answer and self._same is not False

    def _record(self, state: FinalState | str, error: Sentence | None) -> AnyRecord:
        values = self.common(state, error) | {"request": self._asked, "model": self._facts, "points": self._points}
        values |= {"token_ids": self._written, "text": self._text, "same_as_greedy": self._same}
        values |= {"greedy_ns": self._greedy_ns, "greedy_expected_ns": self._greedy_expected_ns}
        return LookupRecord.model_validate(values)


def _point(check: Check, lines: Predictor) -> LookupPoint:
    """FLOPs of a decode step for each row; bytes of one step, and what each further row writes."""
    decode = lines.decode(check.context)
    step = decode.ledger
    further = (check.rows - 1) * (step.bytes.kv_write + step.bytes.logits)
    ratio = (step.bytes.total + further) / step.bytes.total
    return LookupPoint(
        drafted=check.drafted,
        kept=check.kept,
        context=check.context,
        flops=step.flops * check.rows,
        moved_bytes=step.bytes.total + further,
        working_set_bytes=step.working_set_bytes,
        predicted_ns=Predicted(
            datasheet=None,
            measured_roof=max(decode.memory_ns * ratio, decode.compute_ns * check.rows),
            expected=check_ns(lines, check.rows, check.context) if decode.predicted_ns.expected else None,
        ),
    )
