"""One table of what this engine reaches on a CUDA device: how steps are started, and whether each is waited for.

    python tests/gpu/table.py [--models ID ...] [--tokens 64]

Weights are random at true shape, so nothing is downloaded; a model that does not fit is left out and named. Prints one
JSON document: for every model, batch and way of running, the median decode step, its bytes by the ledger, the rate at
which it moved them, and that rate over the read bandwidth measured here; and apart from it what compiling and recording
a step took. Gated DeltaNet runs through flash-linear-attention where that is installed, and through plain torch.
Without a CUDA device it says just that; `--device cpu` does the same on a CPU, where steps are started in one way.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator

import torch

from engine import device, flash_delta, ledger
from engine.calibrate import calibrate
from engine.ceilings import Ceilings
from engine.clock import clock_for
from engine.errors import LabError
from engine.free_run import check_runs_freely, free_run
from engine.generate import RawStep, generate
from engine.model import Model, load
from engine.model.decoder import Decoder
from engine.model.graph import what_compiling_lacks
from engine.spec import GatedDeltaNet

MODELS = (
    "random:Qwen/Qwen3-0.6B",
    "random:meta-llama/Llama-3.1-8B",
    "random:Qwen/Qwen3-30B-A3B@layers=12",
    "random:Qwen/Qwen3.8-27B@layers=16",
)
BATCHES = (1, 8)
PROMPT = list(range(100, 164))
DTYPES = {"cuda": ("bfloat16", "bf16"), "cpu": ("float32", "fp32")}


def main() -> None:
    arguments = parse()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        print(json.dumps({"skipped": "torch finds no CUDA device here"}))
        return
    facts = device.facts(arguments.device)
    print(f"measuring {facts.name}", file=sys.stderr)
    largest = {} if arguments.device == "cuda" else {"largest_bytes": 2**26, "gemm_sizes": (512,)}
    ceilings = calibrate(arguments.device, torch.get_num_threads(), rounds=3, **largest)
    rows, left_out = [], {}
    for name in arguments.models:
        print(f"loading {name}", file=sys.stderr)
        dtype, format_ = DTYPES[arguments.device]
        try:
            model = load(name, device=arguments.device, dtype=dtype, max_tokens=len(PROMPT) + arguments.tokens)
        except LabError as error:
            left_out[name] = str(error)
            continue
        rows += [{"model": name, **row} for row in measure(model, arguments.tokens, ceilings, format_)]
        del model
        if arguments.device == "cuda":
            torch.cuda.empty_cache()
    lacks = what_compiling_lacks()
    table = {
        "device": facts.model_dump(),
        "bandwidth": [{"bytes": p.working_set_bytes, "bytes_per_s": round(p.bytes_per_s)} for p in ceilings.bandwidth],
        "rows": rows,
        "left_out": left_out,
        "not_compiled_for_want_of": lacks,
    }
    print(json.dumps(table, indent=2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="ID")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--device", choices=DTYPES, default="cuda")
    return parser.parse_args()


def measure(model: Model, tokens: int, ceilings: Ceilings, format_: str) -> Iterator[dict]:
    """Every batch in every way; each way once unmeasured, which is when a step is compiled and recorded."""
    for batch in BATCHES:
        step = ledger.decode(model.spec, len(PROMPT) + tokens // 2, batch=batch, formats=ledger.Formats.dense(format_))
        for launches in ways_to_start(model):
            if isinstance(model, Decoder):
                model.use_launches(launches)
            for rule in rules(model):
                for mode, run in ways_to_wait(model, tokens, batch).items():
                    run()
                    median_ns = statistics.median(step.time_ns for step in run() if step.phase == "decode")
                    rate = step.bytes.total / median_ns * 1e9
                    yield {
                        "batch": batch,
                        "launches": launches,
                        "mode": mode,
                        **rule,
                        "step_ms": round(median_ns / 1e6, 4),
                        "tokens_per_s": round(batch * 1e9 / median_ns, 1),
                        "step_bytes": step.bytes.total,
                        "bytes_per_s": round(rate),
                        "share_of_bandwidth": round(rate / ceilings.bandwidth_at(step.working_set_bytes), 3),
                        **made_once(model),
                    }
        if isinstance(model, Decoder):
            model.use_launches("eager")


def ways_to_start(model: Model) -> list[str]:
    if not isinstance(model, Decoder) or model.device.type != "cuda":
        return ["eager"]
    return ["eager", "graph"] + ([] if what_compiling_lacks() else ["compiled"])


def ways_to_wait(model: Model, tokens: int, batch: int) -> dict[str, Callable[[], list[RawStep]]]:
    clock = clock_for(model.device)
    ways: dict[str, Callable[[], list[RawStep]]] = {
        "synchronised": lambda: list(generate(model, PROMPT, max_new_tokens=tokens, clock=clock, batch=batch))
    }
    try:
        check_runs_freely(model)
    except LabError:
        return ways
    return ways | {"free-running": lambda: free_run(model, PROMPT, max_new_tokens=tokens, batch=batch)}


def rules(model: Model) -> Iterator[dict]:
    """What computes Gated DeltaNet, one after the other where there are two; nothing to say where there is none."""
    if not any(isinstance(layer.mixer, GatedDeltaNet) for layer in model.spec.layers):
        yield {}
        return
    if flash_delta.usable(model.device, model.dtype):
        yield {"gated_delta": flash_delta.named(model.device)}
    before = os.environ.get("ROOFLINE_LAB_KERNELS")
    os.environ["ROOFLINE_LAB_KERNELS"] = "torch"
    yield {"gated_delta": "torch"}
    if before is None:
        del os.environ["ROOFLINE_LAB_KERNELS"]
    else:
        os.environ["ROOFLINE_LAB_KERNELS"] = before


def made_once(model: Model) -> dict:
    graph = model.graph if isinstance(model, Decoder) else None
    if graph is None:
        return {}
    return {"compile_s": round(graph.compile_ns / 1e9, 2), "capture_s": round(graph.capture_ns / 1e9, 3)}


if __name__ == "__main__":
    main()
