"""Prompt lookup: the cheapest draft there is. What followed the last words where they stood before is guessed again.

After Saxena, "Prompt Lookup Decoding" (2023); the checking is that of Leviathan, Kalman and Matias (2023), for greedy
choice: a drafted token is kept while it is what the model would have chosen itself. Knows token ids alone; no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MOST_DRAFTS = 15
LONGEST, SHORTEST = 3, 1
"""Tokens that have to be the same for a place to count; the longest match is looked for first."""


def draft(tokens: Sequence[int], most: int, *, longest: int = LONGEST) -> list[int]:
    """Up to `most` tokens that followed the last earlier place where the text stood as it stands at its end.

    Empty where its last token never stood before.
    """
    for length in range(min(longest, len(tokens) - 1), SHORTEST - 1, -1):
        end = list(tokens[-length:])
        for start in range(len(tokens) - length - 1, -1, -1):
            if list(tokens[start : start + length]) == end:
                return list(tokens[start + length : start + length + most])
    return []


@dataclass(frozen=True, slots=True)
class Check:
    """One reading of the weights: `drafted` tokens were checked, the first `kept` of them agreed, one more was gained.

    context: positions attended, the checked ones included.
    """

    drafted: int
    kept: int
    context: int

    @property
    def rows(self) -> int:
        """Rows the pass multiplies: the last known token, and each drafted one."""
        return self.drafted + 1

    @property
    def gained(self) -> int:
        """Tokens it yields: those kept, and the model's own choice behind them."""
        return self.kept + 1


def agreed(drafted: Sequence[int], chosen: Sequence[int]) -> int:
    """How many drafted tokens are what the model chose, up to the first that is not."""
    count = 0
    for guess, choice in zip(drafted, chosen, strict=False):
        if guess != choice:
            break
        count += 1
    return count


def foretell(prompt: Sequence[int], answer: Sequence[int], most: int) -> list[Check]:
    """The checks it will take to write `answer`, whose first token comes from the prefill: no model is needed.

    Greedy choice is certain, so an answer that was written before says exactly how every draft will fare.
    """
    known, end = [*prompt, *answer[:1]], [*prompt, *answer]
    checks: list[Check] = []
    while len(known) < len(end):
        guess = draft(known, min(most, len(end) - len(known) - 1))
        kept = agreed(guess, end[len(known) :])
        checks.append(Check(len(guess), kept, len(known) + len(guess)))
        known = end[: len(known) + kept + 1]
    return checks


def acceptance(checks: Sequence[Check]) -> float | None:
    """The share of drafted tokens that were kept; None where nothing was drafted."""
    drafted = sum(check.drafted for check in checks)
    return sum(check.kept for check in checks) / drafted if drafted else None
