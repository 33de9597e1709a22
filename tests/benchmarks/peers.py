"""How fast is this engine beside transformers and llama.cpp, on one machine, with the same weights and threads?

    pip install -e .[bench]
    python tests/benchmarks/peers.py [--rounds 3] [--threads N] [--folder DIR]

Each contestant has a process of its own; they work in turn, and the order moves on by one every round, so that a drift
of the machine meets all of them. Prints a table (medians over the rounds, and half the interquartile range over the
median), the ratios that matter, formed within each round, and one JSON line with all of it and the machine.

Needs the demo model (it is fetched), about 4 GB of memory, and a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import demo_gguf
from contestants import Engine, LlamaCpp, Seat, Transformers

from engine import checkpoint, quality, settings, tokenizer
from engine.fetched import DEMO_MODEL

TOKENS = 48
WORK = {"prefill 4": (4, 1), "prefill 512": (512, 1), "decode": (64, TOKENS)}
"""Tokens of the prompt, and tokens asked for."""

RATIOS = {
    "decode, fp32 over llama.cpp F32": ("decode", "engine fp32", "llama.cpp F32"),
    "decode, fp32 over transformers": ("decode", "engine fp32", "transformers fp32"),
    "decode, int8 over llama.cpp Q8_0": ("decode", "engine int8", "llama.cpp Q8_0"),
    "decode, bf16 over llama.cpp BF16": ("decode", "engine bf16", "llama.cpp BF16"),
    "prefill 512, fp32 over llama.cpp F32": ("prefill 512", "engine fp32", "llama.cpp F32"),
    "prefill 512, int8 over llama.cpp Q8_0": ("prefill 512", "engine int8", "llama.cpp Q8_0"),
    "prefill 4, fp32 over llama.cpp F32": ("prefill 4", "engine fp32", "llama.cpp F32"),
    "prefill 4, int8 over llama.cpp Q8_0": ("prefill 4", "engine int8", "llama.cpp Q8_0"),
}
"""Speed of the first over speed of the second, in tokens a second."""

Rates = dict[str, dict[str, list[float]]]
"""Tokens a second, by contestant and work, one a round."""


def main() -> None:
    arguments = parse()
    source = checkpoint.ensure(DEMO_MODEL.name)
    _, ids = tokenizer.load(source).encode_prompt(quality.text(), chat=False)
    seats = contestants(source.folder, demo_gguf.ensure(arguments.folder), arguments.threads)
    load_before = os.getloadavg()[0]
    texts = {name: seat.answer(ids[:64], TOKENS).text for name, seat in seats.items()}  # and a warm-up
    rates: Rates = {name: {work: [] for work in WORK} for name in seats}
    for round_ in range(arguments.rounds):
        for name in turn(list(seats), round_):
            for work, (prompt, tokens) in WORK.items():
                answer = seats[name].answer(ids[:prompt], tokens)
                rate = prompt / answer.prefill_s if answer.decode_s is None else 1 / answer.decode_s
                rates[name][work].append(rate)
    for seat in seats.values():
        seat.close()
    found = {
        "rounds": arguments.rounds,
        "tokens_per_s": {name: {work: told(values) for work, values in by.items()} for name, by in rates.items()},
        "ratios": {name: told(ratio(rates, *terms)) for name, terms in RATIOS.items()},
        "prefill_4_over_decode_step": {
            name: told([4 * decode / four for four, decode in zip(by["prefill 4"], by["decode"], strict=True)])
            for name, by in rates.items()
        },
        "same_text_as_engine_fp32": {name: alike(text, texts["engine fp32"]) for name, text in texts.items()},
        "machine": machine(arguments.threads, load_before),
    }
    show(found)
    print(json.dumps(found))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=settings.threads())
    parser.add_argument("--folder", type=Path, default=settings.home() / "peers", help="where the GGUF files are kept")
    return parser.parse_args()


def contestants(folder: Path, files: dict[str, Path], threads: int) -> dict[str, Seat]:
    seats = {f"engine {weights}": Seat(Engine, folder, weights, threads) for weights in ("fp32", "bf16", "int8")}
    seats["transformers fp32"] = Seat(Transformers, folder, "float32", threads)
    return seats | {f"llama.cpp {name}": Seat(LlamaCpp, file, name, threads) for name, file in files.items()}


def turn(names: list[str], round_: int) -> list[str]:
    first = round_ % len(names)
    return names[first:] + names[:first]


def ratio(rates: Rates, work: str, ours: str, theirs: str) -> list[float]:
    """One a round: what slowed the machine then slowed both."""
    return [a / b for a, b in zip(rates[ours][work], rates[theirs][work], strict=True)]


def told(values: Sequence[float]) -> dict[str, float]:
    middle = statistics.median(values)
    low, _, high = statistics.quantiles(values, method="inclusive") if len(values) > 1 else (middle,) * 3
    return {"median": round(middle, 3), "spread": round((high - low) / 2 / middle, 3)}


def alike(text: str, other: str) -> float:
    """The share of characters before the first that differs."""
    same = next((place for place, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), len(other))
    return round(same / max(len(other), 1), 2)


def machine(threads: int, load_before: float) -> dict[str, object]:
    import xllamacpp

    from engine import device

    facts = device.facts("cpu")
    return {
        "processor": facts.name,
        "cores": facts.cores,
        "threads": threads,
        "cache_bytes": facts.cache_bytes,
        "memory_bytes": facts.memory_bytes,
        "instructions torch uses": facts.cpu_capability,
        "instructions llama.cpp uses": xllamacpp.get_system_info().strip(),
        "python": facts.python_version,
        "versions": {name: version(name) for name in ("torch", "transformers", "xllamacpp", "numba")},
        "load_average_before": round(load_before, 2),
    }


def show(found: dict) -> None:
    print(f"{'tokens/s':22}" + "".join(f"{work:>20}" for work in WORK))
    for name, by in found["tokens_per_s"].items():
        print(f"{name:22}" + "".join(f"{by[work]['median']:12.1f} ±{by[work]['spread']:5.1%}" for work in WORK))
    print()
    for name, value in found["ratios"].items():
        print(f"{name:42}{value['median']:8.2f} ±{value['spread']:5.1%}")
    for name, value in found["prefill_4_over_decode_step"].items():
        print(f"{'prefill of 4 over a decode step, ' + name:42}{value['median']:8.2f} ±{value['spread']:5.1%}")
    print()


if __name__ == "__main__":
    main()
