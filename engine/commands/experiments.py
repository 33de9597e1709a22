"""`shapes` and `sweep`: the same broker and worker as their pages, watched from a terminal."""

from __future__ import annotations

import argparse
import sys

from engine.commands._output import ProgressBar, print_table
from engine.commands.measure import OWNER, broker_at_work
from engine.errors import LabError
from engine.experiment import Timed
from engine.experiment_record import AnyRecord, AnyRequest, asked, measured, to_csv
from engine.shapes import ROWS, ShapePoint, ShapeRecord, ShapeRequest, flat_until, knee_rows, missing, ridge_rows
from engine.sweeps import FIRST, SweepPoint, SweepRequest, up_to


def shapes(arguments: argparse.Namespace) -> int:
    """Time one matrix."""
    request = ShapeRequest(
        model=arguments.model,
        matrix=arguments.matrix,
        weights=arguments.weights,
        rows=_numbers("--rows", arguments.rows) or list(ROWS),
        device=arguments.device,
    )
    return _measure(request, "json" if arguments.json else arguments.format)


def sweep(arguments: argparse.Namespace) -> int:
    """Time steps over one axis."""
    request = SweepRequest(
        model=arguments.model,
        axis=arguments.axis,
        values=_numbers("--values", arguments.values) or up_to(arguments.axis, FIRST[arguments.axis]),
        context=arguments.context,
        batch=arguments.batch,
        dtype=arguments.dtype,
        weights=arguments.weights,
        kv=arguments.kv,
        device=arguments.device,
    )
    return _measure(request, "json" if arguments.json else arguments.format)


def _numbers(option: str, text: str | None) -> list[int]:
    parts = [part.strip() for part in (text or "").split(",") if part.strip()]
    if not all(part.isdecimal() and part.isascii() for part in parts):
        raise LabError("{option} is {text}; it has to be whole numbers with commas between.", option=option, text=text)
    return [int(part) for part in parts]


def _measure(request: AnyRequest, form: str) -> int:
    bar = ProgressBar()
    with broker_at_work() as broker:
        made = broker.experiments
        experiment_id = made.submit(request, OWNER)
        try:
            while not (view := made.view(experiment_id)).ended:
                if view.progress is not None:
                    bar(view.progress.sentence, view.progress.fraction)
                made.wait(experiment_id, 0.2)
        except KeyboardInterrupt:
            broker.cancel(experiment_id, OWNER)
            made.wait_for(experiment_id, 20.0)
        bar.close()
        record = made.record(experiment_id)
    if form == "text":
        _print(record)
    else:
        sys.stdout.write(record.to_json() + "\n" if form == "json" else to_csv(record))
    return _exit_code(record)


def _exit_code(record: AnyRecord) -> int:
    if record.state == "done":
        return 0
    if record.error is not None:
        raise LabError.from_sentence(record.error)
    raise LabError(
        "The experiment was cancelled after {measured} of {asked} points; they are kept as {id}.",
        measured=measured(record),
        asked=asked(record),
        id=record.id,
    )


def _print(record: AnyRecord) -> None:
    print_table(
        ("at", "time", "spread", "roof", "time / roof", "rate", ""),
        [_line(point) for point in record.points if point.time_ns is not None],
    )
    for note in record.notes:
        print(f"note: {note}")
    if isinstance(record, ShapeRecord):
        points = record.points
        turns = {"flat until": flat_until(points), "knee": knee_rows(points), "ridge": ridge_rows(record)}
        print(", ".join(f"{name} {rows:.1f} rows" for name, rows in turns.items() if rows is not None))
        for each in missing(points):
            print(f"note: {each}")
    print(f"experiment {record.id}", file=sys.stderr)


def _line(point: Timed) -> tuple[str, ...]:
    assert point.time_ns is not None
    at = point.rows if isinstance(point, ShapePoint) else point.value if isinstance(point, SweepPoint) else 0
    return (
        f"{at:,}",
        f"{point.time_ns / 1e6:,.3f} ms",
        f"{point.spread:.0%}",
        f"{point.predicted_ns.measured_roof / 1e6:,.3f} ms",
        f"{point.time_ns / point.predicted_ns.measured_roof:.2f}",
        f"{(point.flops_per_s or 0) / 1e9:,.1f} GFLOP/s",
        " ".join(point.flags),
    )
