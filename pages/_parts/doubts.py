"""What is to be doubted in what a machine was measured to reach, and how that is said after it."""

from __future__ import annotations

from typing import Literal

from engine.ceilings import Ceilings
from engine.judging import ceilings_spreads, unsteady, was_busy
from pages._parts.words import Words

Doubt = Literal["disturbed", "unsteady"]


def of_ceilings(ceilings: Ceilings | None) -> Doubt | None:
    """Of what a machine was measured to reach."""
    if ceilings is None:
        return None
    if was_busy(ceilings):
        return "disturbed"
    return "unsteady" if unsteady(ceilings_spreads(ceilings)) is not None else None


def sentence(t: Words, doubt: Doubt | None) -> str:
    """A sentence to be said after what was measured; empty where nothing is to be doubted."""
    if doubt is None:
        return ""
    if doubt == "disturbed":
        return t("That measurement was disturbed: something else used the machine, so its numbers are unsure.")
    return t("That measurement was unsteady: its repetitions lie far apart, so its numbers are unsure.")
