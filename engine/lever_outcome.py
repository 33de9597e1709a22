"""What became of a lever: which forecast a run answers, and a sentence on how far it came from what was predicted."""

from __future__ import annotations

from engine.errors import N_, Sentence
from engine.lever_record import Lever
from engine.record import RunRequest

CLOSE = 0.1
LESS: dict[str, str] = {
    "weights": N_("Less than the bytes promise: turning the stored numbers into what is multiplied takes time too."),
    "kv": N_("Less than the bytes promise: the cache is turned into what is multiplied at every step."),
    "batch": N_("Less than predicted: the kernel for several rows does not read as fast as the one for a single row."),
    "context": N_("Less than predicted: so short a context costs next to nothing already."),
    "lookup": N_("Less than predicted: a check of several rows costs more than the pass it was reckoned as."),
}
MORE: dict[str, str] = {
    "weights": N_("More than predicted: the kernel for this format reads faster than the one the base run used."),
    "lookup": N_("More than predicted: checking several rows costs less than was reckoned."),
}
OTHERWISE = N_("More than predicted: the base run was slower than expected, or this one faster.")


def mark(asked: RunRequest, forecast_id: str, lever: str) -> RunRequest:
    """The request that pulls a lever, with the forecast it answers in it."""
    return RunRequest.model_validate(asked.model_dump() | {"forecast": forecast_id, "lever": lever})


def marks_of(asked: RunRequest) -> tuple[str, str]:
    """The forecast and the lever a run answers; empty where it answers none."""
    extra = asked.model_extra or {}
    forecast_id, lever = extra.get("forecast"), extra.get("lever")
    return (forecast_id, lever) if isinstance(forecast_id, str) and isinstance(lever, str) else ("", "")


def miss(lever: Lever, gain: float, *, disturbed: bool = False) -> Sentence:
    """A sentence on how far the measured gain lies from the predicted one, and the likely reason.

    disturbed: others used the machine during one of the two runs.
    """
    off = gain / lever.gain - 1
    if abs(off) <= CLOSE:
        return Sentence(template=N_("As predicted, within a tenth."))
    if disturbed:
        return Sentence(
            template=N_("Other programs used the machine during one of the two runs: the difference says nothing yet.")
        )
    return Sentence(template=LESS[lever.kind] if off < 0 and lever.kind in LESS else MORE.get(lever.kind, OTHERWISE))
