"""`models`, `hardware` and `fetch`: what can be chosen, and bringing it here."""

from __future__ import annotations

import argparse
import sys

from engine.commands._output import ProgressBar, print_json, print_table


def models(arguments: argparse.Namespace) -> None:
    """Models the engine can run here, then those it can predict."""
    from engine import catalogue, checkpoint

    runnable = checkpoint.available()
    known = {choice.id for choice in runnable}
    predictable = [model_id for model_id in catalogue.ids() if model_id not in known]
    if arguments.json:
        print_json(
            [
                {"id": c.id, "weights": c.weights, "fetched": c.fetched, "parameters": c.parameters, "runs_here": True}
                for c in runnable
            ]
            + [{"id": model_id, "runs_here": False} for model_id in predictable]
        )
        return
    print_table(
        ("model", "weights", "here", "parameters"),
        [(c.id, c.weights, "yes" if c.fetched else "after fetch", f"{c.parameters:,}") for c in runnable],
    )
    print(f"\npredictions also know {len(predictable)} more:\n  " + "\n  ".join(predictable))


def hardware(arguments: argparse.Namespace) -> None:
    """Devices in hardware_specs/, with the two numbers that make a roof."""
    from engine import hardware as devices

    known = [devices.load(hardware_id) for hardware_id in devices.ids()]
    rows = [
        (
            d.id,
            d.name,
            d.bandwidth_bytes_per_s,
            d.peak_flops_per_s("bf16") or d.peak_flops_per_s("fp16"),
            d.memory_bytes,
        )
        for d in known
    ]
    if arguments.json:
        keys = ("id", "name", "bandwidth_bytes_per_s", "half_precision_flops_per_s", "memory_bytes")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table(
        ("id", "name", "GB/s", "16-bit TFLOP/s", "GB"),
        [
            (i, name, f"{b / 1e9:,.0f}", f"{f / 1e12:,.1f}" if f else "-", f"{m / 1e9:,.0f}" if m else "-")
            for i, name, b, f, m in rows
        ],
    )


def fetch(arguments: argparse.Namespace) -> None:
    """Bring a checkpoint to the lab's home folder; a second call finds it there."""
    from engine import checkpoint

    bar = ProgressBar()
    try:
        source = checkpoint.ensure(arguments.model, progress=bar, thorough=True)
    finally:
        bar.close()
    for note in source.notes():
        print(f"note: {note}", file=sys.stderr)
    if source.revision is not None:
        print(f"revision {source.revision}", file=sys.stderr)
    print(source.folder if source.folder is not None else f"{arguments.model} needs no files: its weights are random.")
