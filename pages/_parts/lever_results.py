"""A run's levers and what became of them: the forecast, kept or fresh, and the measurements that answer it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import lru_cache

from engine import broker, levers, lookups
from engine.ceilings import Ceilings
from engine.errors import LabError, Sentence
from engine.experiment_record import AnyRecord
from engine.imported import imported_at
from engine.judging import run_flags
from engine.lever_outcome import mark
from engine.lever_record import Foretold, Lever, LeversRecord
from engine.lookups import LookupRecord
from engine.record import Run

LISTED = 60


@dataclass(frozen=True)
class Result:
    """What one lever gave here. link: its kind and id.

    Of drafts: against_tokens_per_s is what the same measurement gave without them, and what the gain is over; same
    says whether the tokens were greedy's.
    """

    measured: Foretold
    gain: float
    link: tuple[str, str]
    against_tokens_per_s: float | None = None
    acceptance: float | None = None
    passes: int | None = None
    same: bool | None = None
    disturbed: bool = False


def forecast_of(run: Run) -> tuple[LeversRecord, bool]:
    """The forecast kept of a run, or one made now; and whether it is kept.

    Raises:
        LabError: the run has nothing to predict from.
    """
    is_imported = imported_at(run) is not None
    for row in broker.current().experiments.newest("levers", LISTED, run.request.model):
        # A forecast from a file was not made here before a run that was.
        if row.belongs_to == run.id and (is_imported or not row.imported):
            kept = broker.current().experiments.record(row.id)
            if isinstance(kept, LeversRecord):
                return kept, True
    return _made(run.id), False


@lru_cache(maxsize=32)
def _made(run_id: str) -> LeversRecord:
    return levers.forecast(broker.current().record(run_id))


def pull(run: Run, lever: Lever, owner: str) -> None:
    """Keep the forecast, then ask for the measurement.

    Raises:
        LabError: it cannot be asked for, or the forecast cannot be kept.
    """
    lab = broker.current()
    forecast, is_kept = forecast_of(run)
    if not is_kept:
        lab.experiments.keep(forecast)
    if lever.request is None:
        raise LabError("This lever can only be predicted here.")
    if lever.kind == "lookup":
        lab.experiments.submit(lookups.of_run(lever.request, drafts=lever.drafts, forecast=forecast.id), owner)
    else:
        lab.submit(mark(lever.request, forecast.id, lever.name), owner)


def results(run: Run, forecast: LeversRecord) -> tuple[dict[str, Result], dict[str, Sentence]]:
    """The newest measurement that answers each lever of a run; and of levers whose newest one failed, why it did."""
    lab, found, newest = broker.current(), dict[str, Result](), dict[str, Run | AnyRecord | None]()
    base = forecast.base_measured.tokens_per_s
    was_disturbed = run.summary is not None and "disturbed" in run.summary.flags
    for row in lab.runs(LISTED, forecast.request.model):
        if row.forecast != forecast.id:
            continue
        if row.lever not in newest:
            newest[row.lever] = lab.record(row.id) if row.state == "failed" else None
        if row.state == "done" and row.lever not in found:
            measured = _of_run(lab.record(row.id))
            disturbed = was_disturbed or "disturbed" in row.flags
            if measured is not None:
                found[row.lever] = Result(measured, measured.tokens_per_s / base, ("run", row.id), disturbed=disturbed)
    for experiment in lab.experiments.newest("lookup", LISTED, forecast.request.model):
        if experiment.belongs_to != forecast.id:
            continue
        if "lookup" not in newest:
            newest["lookup"] = lab.experiments.record(experiment.id) if experiment.state == "failed" else None
        if experiment.state == "done" and "lookup" not in found:
            result = _of_lookup(lab.experiments.record(experiment.id))
            if result is not None:
                found["lookup"] = result
    failed = {name: record.error for name, record in newest.items() if record is not None and record.error is not None}
    return found, failed


def _of_lookup(record: AnyRecord) -> Result | None:
    if not isinstance(record, LookupRecord) or record.gain is None or record.tokens_per_s is None:
        return None
    return Result(
        Foretold(step_ns=1e9 / record.tokens_per_s, tokens_per_s=record.tokens_per_s),
        record.gain,
        ("lookup", record.id),
        record.greedy_tokens_per_s,
        record.acceptance,
        len(record.points),
        record.same_as_greedy,
        disturbed=record.ceilings is not None and bool(run_flags([], record.probe, record.ceilings)),
    )


def _of_run(run: Run) -> Foretold | None:
    times = [step.time_ns for step in run.steps if step.phase == "decode"]
    if not times:
        return None
    step_ns = statistics.median(times)
    return Foretold(step_ns=step_ns, tokens_per_s=run.request.batch / step_ns * 1e9)


def is_from_here(run: Run) -> bool:
    """Whether the run was measured by this machine as it is now, so that another can be compared with it."""
    here = broker.current().machine().device
    if here is None or run.device is None or imported_at(run) is not None:
        return False
    return Ceilings.key(here) == Ceilings.key(run.device)
