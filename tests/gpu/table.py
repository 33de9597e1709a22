"""One table of what this engine reaches on a CUDA device: eager against graph, synchronised against free-running.

    python tests/gpu/table.py [--models ID ...] [--tokens 64]

Weights are random at true shape, so nothing is downloaded; a model that does not fit is left out and named. Prints one
JSON document: for every model, batch and way of running, the median decode step, its bytes by the ledger, the rate at
which it moved them, and that rate over the read bandwidth measured here. Without a CUDA device it says just that.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator

import torch

from engine import device, ledger
from engine.calibrate import calibrate
from engine.ceilings import Ceilings
from engine.clock import clock_for
from engine.errors import LabError
from engine.free_run import free_run
from engine.generate import generate
from engine.model import Model, load
from engine.model.decoder import Decoder

MODELS = ("random:Qwen/Qwen3-0.6B", "random:meta-llama/Llama-3.1-8B", "random:Qwen/Qwen3-30B-A3B@layers=12")
BATCHES = (1, 8)
PROMPT = list(range(100, 164))
BF16 = ledger.Formats.dense("bf16")


def main() -> None:
    arguments = parse()
    if not torch.cuda.is_available():
        print(json.dumps({"skipped": "torch finds no CUDA device here"}))
        return
    place = torch.device("cuda")
    facts = device.facts(place)
    print(f"measuring {facts.name}", file=sys.stderr)
    ceilings = calibrate("cuda", 1, rounds=3)
    rows, left_out = [], {}
    for name in arguments.models:
        print(f"loading {name}", file=sys.stderr)
        try:
            model = load(name, device="cuda", dtype="bfloat16", max_tokens=len(PROMPT) + arguments.tokens)
        except LabError as error:
            left_out[name] = str(error)
            continue
        rows += [{"model": name, **row} for row in measure(model, arguments.tokens, ceilings)]
        del model
        torch.cuda.empty_cache()
    table = {"device": facts.model_dump(), "bandwidth": bandwidth(ceilings), "rows": rows, "left_out": left_out}
    print(json.dumps(table, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="ID")
    parser.add_argument("--tokens", type=int, default=64)
    return parser.parse_args()


def measure(model: Model, tokens: int, ceilings: Ceilings) -> Iterator[dict]:
    """Every batch in every way; each way once unmeasured, which is when a graph is captured."""
    clock = clock_for(model.device)
    for batch in BATCHES:
        step = ledger.decode(model.spec, len(PROMPT) + tokens // 2, batch=batch, formats=BF16)
        for graph in (False, True) if isinstance(model, Decoder) else (False,):
            if isinstance(model, Decoder):
                model.use_graphs(graph)

            def synchronised(batch: int = batch) -> list[int]:
                steps = generate(model, PROMPT, max_new_tokens=tokens, clock=clock, batch=batch)
                return [step.time_ns for step in steps if step.phase == "decode"]

            def freely(batch: int = batch) -> list[int]:
                return free_run(model, PROMPT, max_new_tokens=tokens, batch=batch).step_ns

            for mode, run in (("synchronised", synchronised), ("free-running", freely)):
                run()
                median_ns = statistics.median(run())
                rate = step.bytes.total / median_ns * 1e9
                yield {
                    "batch": batch,
                    "launches": "graph" if graph else "eager",
                    "mode": mode,
                    "step_ms": round(median_ns / 1e6, 4),
                    "tokens_per_s": round(batch * 1e9 / median_ns, 1),
                    "step_bytes": step.bytes.total,
                    "bytes_per_s": round(rate),
                    "share_of_bandwidth": round(rate / ceilings.bandwidth_at(step.working_set_bytes), 3),
                }


def bandwidth(ceilings: Ceilings) -> list[dict]:
    return [{"bytes": point.working_set_bytes, "bytes_per_s": round(point.bytes_per_s)} for point in ceilings.bandwidth]


if __name__ == "__main__":
    main()
