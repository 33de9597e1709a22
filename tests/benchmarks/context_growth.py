"""How a decode step grows with the context, next to what the bytes of the KV cache alone would add.

    python tests/benchmarks/context_growth.py [--weights fp32 int8] [--kv fp32 int8] [--rounds N]

The demo model, with the cache filled with made-up numbers; contexts and a plain reading of memory take turns. A step
that is limited by memory takes at most the time at the shortest context and that of reading the further positions:
the last column says how far it is from that.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter_ns

import torch

from engine import device, settings
from engine.arena import zeros
from engine.kernels.reader import reading
from engine.ledger import Formats, decode
from engine.model import Model, load

MODEL = "smollm2-135m"
CONTEXTS = (64, 512, 1024, 2048)
READ_BYTES = 2**29
STEPS = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", nargs="+", default=["fp32", "int8"], metavar="F")
    parser.add_argument("--kv", nargs="+", default=["fp32", "int8"], metavar="F")
    parser.add_argument("--rounds", type=int, default=15, metavar="N")
    arguments = parser.parse_args()
    device.use_threads(settings.threads())
    print(
        "| weights | cache | "
        + " | ".join(f"at {context}" for context in CONTEXTS)
        + " | bytes' share | found over it |"
    )
    print("|---" * (4 + len(CONTEXTS)) + "|")
    for weights in arguments.weights:
        model = load(MODEL, weights=weights)
        for kv in arguments.kv:
            model.hold_kv(None if kv == "fp32" else kv)
            print(_row(model, weights, kv, arguments.rounds), flush=True)


def _row(model: Model, weights: str, kv: str, rounds: int) -> str:
    """One line of the table: ms at each context; ms that the bytes between the first and the last would add."""
    formats = Formats.engine("fp32", weights, kv)
    _fill(model)
    times: dict[int, list[float]] = {context: [] for context in (0, *CONTEXTS)}
    memory = zeros((READ_BYTES // 4,), torch.float32, torch.device("cpu"))
    read = reading(memory.data_ptr(), memory.numel(), torch.get_num_threads())
    calls: dict[int, Callable[[], object]] = {0: read} | {context: _step(model, context) for context in CONTEXTS}
    for _ in range(rounds):
        for context, call in calls.items():
            call()
            for _ in range(STEPS):
                started = perf_counter_ns()
                call()
                times[context].append(perf_counter_ns() - started)
    median = {context: statistics.median(values) for context, values in times.items()}
    first, last = (decode(model.spec, context, formats=formats).bytes.total for context in (CONTEXTS[0], CONTEXTS[-1]))
    share = (last - first) * median[0] / READ_BYTES
    ratio = median[CONTEXTS[-1]] / (median[CONTEXTS[0]] + share)
    cells = [f"{median[context] / 1e6:.2f}" for context in CONTEXTS]
    return f"| {weights} | {kv} | {' | '.join(cells)} | {share / 1e6:.2f} | {ratio:.3f} |"


@torch.inference_mode()
def _fill(model: Model) -> None:
    """A cache with a number in every place: pages never written would all be one."""
    model.prefill(torch.ones(1, 1, dtype=torch.long), positions=CONTEXTS[-1])
    storage, scales = model.cache.storage, model.cache.scales  # type: ignore[attr-defined]
    storage.random_(-127, 128)
    if scales is None:
        storage.div_(127)
    else:
        scales.fill_(1 / 127)


def _step(model: Model, context: int) -> Callable[[], object]:
    token = torch.ones(1, dtype=torch.long)

    def step() -> None:
        model.cache.length = context - 1
        model.decode(token)

    return step


if __name__ == "__main__":
    main()
