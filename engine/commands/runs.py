"""`runs`: list, show, export and import recorded runs; experiments are exported and taken in likewise."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TextIO

from engine.commands._output import print_json, print_table
from engine.errors import LabError
from engine.record import Run


def runs(arguments: argparse.Namespace) -> None:
    """One of list, show, export and import."""
    {"list": _list, "show": _show, "export": _export, "import": _import}[arguments.action](arguments)


def _list(arguments: argparse.Namespace) -> None:
    from engine.store import open_store

    if arguments.limit < 1:
        raise LabError("--limit is {value}; it has to be a whole number of at least 1.", value=arguments.limit)
    rows = open_store().list(limit=arguments.limit)
    if arguments.json:
        print_json([row.model_dump(mode="json") for row in rows])
        return
    print_table(
        ("id", "when", "model", "state", "tokens"),
        [(row.id, row.created_at, row.model, row.state, row.output_tokens) for row in rows],
    )


def _get(run_id: str) -> Run:
    from engine.store import open_store

    run = open_store().get(run_id)
    if run is None:
        raise LabError("No run {id} is recorded here; `runs list` shows those that are.", id=run_id)
    return run


def _show(arguments: argparse.Namespace) -> None:
    run = _get(arguments.id)
    print(f"{run.id}  {run.created_at}  {run.request.model}  {run.state}")
    if run.error:
        print(run.error)
    if run.summary:
        print_summary(run)
    if run.output.text:
        print(f"\n{run.request.prompt}\n---\n{run.output.text}")


def print_summary(run: Run, file: TextIO | None = None) -> None:
    """The verdict first, then the numbers, on `file` (stdout by default)."""
    summary = run.summary
    if summary is None:
        return
    lines = [summary.verdict]
    if summary.ttft_ms is not None:
        lines.append(f"TTFT             {summary.ttft_ms:,.1f} ms")
    if summary.tpot_ms is not None:
        tpot = summary.tpot_ms
        lines.append(f"TPOT             p50 {tpot.p50:,.2f}  p95 {tpot.p95:,.2f}  p99 {tpot.p99:,.2f} ms")
    if summary.tokens_per_s is not None:
        lines.append(f"decode           {summary.tokens_per_s:,.1f} tokens/s, the mean over all steps")
    if summary.mbu is not None:
        lines.append(f"MBU              {summary.mbu:.0%} of the read bandwidth measured here")
    if summary.mfu_prefill is not None:
        lines.append(f"prefill MFU      {summary.mfu_prefill:.0%} of the matrix rate measured here")
    if summary.median_abs_error is not None:
        lines.append(f"expected line    off by {summary.median_abs_error:.0%} in the median")
    lines += _prepared(run)
    if summary.flags:
        lines.append(f"flags            {', '.join(summary.flags)}")
    print("\n".join(lines), file=file)


def _prepared(run: Run) -> list[str]:
    """What took time before the first step, once, and is in none of the numbers above."""
    took = run.preparation
    if took is None:
        return []
    named = (("load", took.load_ns), ("compiling", took.compile_ns), ("recording graph", took.capture_ns))
    return [f"{label:<17}{time_ns / 1e9:,.2f} s, once and apart" for label, time_ns in named if time_ns]


def _export(arguments: argparse.Namespace) -> None:
    from engine import experiment_record
    from engine.record_io import to_csv
    from engine.store import open_store

    store = open_store()
    record = store.get(arguments.id) or store.get_experiment(arguments.id)
    if record is None:
        raise LabError("Neither a run nor an experiment {id} is recorded here.", id=arguments.id)
    if arguments.format == "json":
        sys.stdout.write(record.to_json() + "\n")
    else:
        sys.stdout.write(to_csv(record) if isinstance(record, Run) else experiment_record.to_csv(record))


def _import(arguments: argparse.Namespace) -> None:
    from engine import experiment_record
    from engine.record_io import read_run
    from engine.store import open_store

    store = open_store()
    try:
        content = Path(arguments.file).read_bytes()
    except OSError as error:
        raise LabError(
            "{file} cannot be read: {reason}.", file=arguments.file, reason=error.strerror or str(error)
        ) from error
    if experiment_record.holds_experiment(content):
        record = experiment_record.read(content)
        store.put_experiment(record)
        print(record.id)
    else:
        run = read_run(content)
        store.put(run)
        print(run.id)
