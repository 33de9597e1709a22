"""Is the expected line right? Twenty kinds of run, each predicted before it is made, in turn.

    python tests/benchmarks/expected_cells.py measure >> cells.jsonl      one round; three of them over an hour
    python tests/benchmarks/expected_cells.py table cells.jsonl

`measure` prints a JSON line a run: how far the expected line was off over its decode steps (median of the absolute
errors, as the run's own summary says it) and over its prefill. `table` gives each cell the median of its runs, and all
of them their medians. Every run is one of the command line's, with what it calibrates by itself; nothing is fitted.
Needs the demo model (it is fetched), about 10 GB of memory, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from engine import checkpoint, quality, tokenizer

DEMO, SMALL, TINY = "smollm2-135m", "random:Qwen/Qwen3-0.6B", "tiny-3.7m"
ANCHOR, MIXTURE = "random:Qwen/Qwen3.8-27B@layers=2", "random:Qwen/Qwen3-30B-A3B@layers=2"
NEW_TOKENS = 25
"""One from the prefill and 24 decode steps."""


@dataclass(frozen=True)
class Cell:
    """One kind of run; weights None for the checkpoint's own format."""

    model: str
    context: int
    weights: str | None = None
    batch: int = 1

    @property
    def name(self) -> str:
        parts = [self.model.removeprefix("random:").split("/")[-1], self.weights or "own", f"context {self.context}"]
        return ", ".join(parts + ([f"batch {self.batch}"] if self.batch > 1 else []))


CELLS = (
    Cell(DEMO, 64),
    Cell(DEMO, 512),
    Cell(DEMO, 2048),
    Cell(DEMO, 256, batch=4),
    Cell(DEMO, 128, batch=16),
    Cell(DEMO, 64, "int8"),
    Cell(DEMO, 1024, "int8"),
    Cell(DEMO, 256, "int8", batch=8),
    Cell(DEMO, 64, "bf16"),
    Cell(DEMO, 1024, "bf16"),
    Cell(SMALL, 64, "fp32"),
    Cell(SMALL, 1024, "fp32"),
    Cell(SMALL, 64, "int8"),
    Cell(TINY, 32),
    Cell(TINY, 256),
    Cell(TINY, 32, batch=8),
    Cell(ANCHOR, 16),
    Cell(ANCHOR, 256),
    Cell(MIXTURE, 64),
    Cell(MIXTURE, 64, batch=4),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    work = parser.add_subparsers(dest="work", required=True)
    work.add_parser("measure")
    work.add_parser("table").add_argument("file", type=Path)
    arguments = parser.parse_args()
    if arguments.work == "measure":
        for cell in CELLS:
            print(json.dumps(measured(cell)), flush=True)
    else:
        show([json.loads(line) for line in arguments.file.read_text().splitlines()])


def measured(cell: Cell) -> dict:
    """One run of the command line, and how far its expected line was off."""
    command = ["run", "--model", cell.model, "--prompt", prompt(cell), "--max-new-tokens", str(NEW_TOKENS)]
    command += ["--batch", str(cell.batch), *formats(cell), "--json"]
    done = subprocess.run([sys.executable, "-m", "engine", *command], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"cell": cell.name, "error": done.stderr.strip().splitlines()[-1]}
    run = json.loads(done.stdout)
    prefill, decode = run["steps"][0], run["steps"][1:]
    return {
        "cell": cell.name,
        "decode_error": run["summary"]["median_abs_error"],
        "decode_ms": statistics.median(step["time_ns"] for step in decode) / 1e6,
        "decode_expected_ms": statistics.median(step["predicted_ns"]["expected"] for step in decode) / 1e6,
        "decode_roof_ms": statistics.median(step["predicted_ns"]["measured_roof"] for step in decode) / 1e6,
        "prefill_error": abs(prefill["predicted_ns"]["expected"] / prefill["time_ns"] - 1),
        "prefill_ms": prefill["time_ns"] / 1e6,
        "prefill_expected_ms": prefill["predicted_ns"]["expected"] / 1e6,
        "prompt_tokens": prefill["tokens"],
        "probe_after_over_before": run["probe"]["after_ns"] / run["probe"]["before_ns"],
        "kernels": run["device"]["kernels"],
    }


def formats(cell: Cell) -> list[str]:
    """Weights in a format of their own are multiplied in fp32."""
    return ["--weights", cell.weights, "--dtype", "float32"] if cell.weights else []


def prompt(cell: Cell) -> str:
    """Text of as many tokens as the cell's context, but for what its end may join."""
    words = tokenizer.load(checkpoint.ensure(cell.model))
    ids = words.encode(quality.text() * (1 + cell.context // 200))
    return words.decode(ids[: cell.context])


def show(runs: list[dict]) -> None:
    """A line a cell: medians of its runs; then the medians of all, and how many cells are within the bounds."""
    decode, prefill = [], []
    for cell in CELLS:
        mine = [run for run in runs if run["cell"] == cell.name and "error" not in run]
        if not mine:
            print(f"{cell.name}: no run")
            continue
        decode.append(statistics.median(run["decode_error"] for run in mine))
        prefill.append(statistics.median(run["prefill_error"] for run in mine))
        times = [statistics.median(run[name] for run in mine) for name in ("decode_ms", "decode_expected_ms")]
        print(
            f"{cell.name}: decode off by {decode[-1]:.1%} ({times[0]:.2f} ms, expected {times[1]:.2f}), "
            f"prefill by {prefill[-1]:.1%}, {len(mine)} runs"
        )
    for phase, errors, bound in (("decode", decode, 0.10), ("prefill", prefill, 0.15)):
        within = sum(error <= bound for error in errors)
        print(f"{phase}: median {statistics.median(errors):.1%}, {within} of {len(errors)} within {bound:.0%}")


if __name__ == "__main__":
    main()
