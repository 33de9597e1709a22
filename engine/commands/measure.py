"""`run` and `calibrate`: the same broker and worker as the page, watched from a terminal."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine import settings
from engine.broker import Broker
from engine.ceilings import Ceilings
from engine.commands._output import ProgressBar, print_json, print_table
from engine.commands.runs import print_summary
from engine.errors import LabError
from engine.record import Run, RunRequest, RunView
from engine.request import check
from engine.store import open_store
from engine.verdict import measured_while_busy

OWNER = "command line"
POLL_S = 0.05


def run(arguments: argparse.Namespace) -> int:
    """Run one prompt; text streams to stdout, progress and the summary to stderr."""
    request = RunRequest(**{name: getattr(arguments, name) for name in RunRequest.model_fields})
    check(request)
    with broker_at_work() as broker:
        run_id = broker.submit(request, OWNER)
        try:
            _watch(broker, run_id, stream_text=not arguments.json)
        except KeyboardInterrupt:
            broker.cancel(run_id, OWNER)
            _watch(broker, run_id, stream_text=False)
        record = broker.record(run_id)
        unsaved = broker.snapshot(run_id).notice
    if arguments.json:
        sys.stdout.write(record.to_json() + "\n")
    elif record.state != "failed":
        for note in record.model.notes if record.model is not None else []:
            print(f"note: {note}", file=sys.stderr)
        print_summary(record, file=sys.stderr)
        if unsaved is None:
            print(f"run {record.id}", file=sys.stderr)
    code = _exit_code(record)
    if unsaved is not None:
        raise LabError.from_sentence(unsaved)
    return code


def calibrate(arguments: argparse.Namespace) -> None:
    """Measure this machine's ceilings anew and keep them."""
    with broker_at_work() as broker:
        ceilings = broker.calibrate_and_wait(OWNER, device=arguments.device, progress=ProgressBar())
    if arguments.json:
        print_json(ceilings.model_dump(mode="json"))
    else:
        _print_ceilings(ceilings)


@contextmanager
def broker_at_work() -> Iterator[Broker]:
    """A started broker of the command line, stopped at the end.

    Raises:
        LabError: the environment asks for what cannot be; said before a run that would fail of it is kept.
    """
    settings.check()
    broker = Broker(open_store(), allow_paths=True)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def _watch(broker: Broker, run_id: str, *, stream_text: bool) -> None:
    """Follow the run to its end: progress to stderr, the first sequence's text to stdout as it comes."""
    bar, seen = ProgressBar(), 0
    while True:
        view = broker.snapshot(run_id, since=seen)
        if view.progress is not None and not view.steps and not view.ended:
            bar(view.progress.sentence, view.progress.fraction)
        if view.steps:
            bar.close()
            seen += len(view.steps)
            if stream_text:
                sys.stdout.write("".join(step.text for step in view.steps))
                sys.stdout.flush()
        if view.ended:
            bar.close()
            _end_text(view, stream_text)
            return
        time.sleep(POLL_S)


def _end_text(view: RunView, stream_text: bool) -> None:
    if stream_text and view.steps_so_far:
        sys.stdout.write("\n")
        sys.stdout.flush()


def _exit_code(record: Run) -> int:
    if record.state == "done":
        return 0
    if record.error is not None:
        raise LabError.from_sentence(record.error)
    if not record.steps:
        raise LabError("The run was cancelled before its first step; it is kept as run {id}.", id=record.id)
    raise LabError(
        "The run was cancelled after {steps} steps; they are kept as run {id}.", steps=len(record.steps), id=record.id
    )


def _print_ceilings(ceilings: Ceilings) -> None:
    device = ceilings.device
    print(f"{device.name}, {device.threads} threads, torch {device.torch_version}, measured {ceilings.measured_at}")
    print_table(
        ("working set", "read bandwidth", "spread"),
        [
            (f"{p.working_set_bytes / 1e6:,.2f} MB", f"{p.bytes_per_s / 1e9:,.1f} GB/s", f"{p.spread:.1%}")
            for p in ceilings.bandwidth
        ],
    )
    for dtype, rate in ceilings.peak_flops_per_s.items():
        print(f"matrix rate {dtype}: {rate / 1e9:,.0f} GFLOP/s")
    print(f"launch: {ceilings.launch_ns / 1e3:,.2f} us")
    busy = measured_while_busy(ceilings)
    if busy is not None:
        print(busy)
