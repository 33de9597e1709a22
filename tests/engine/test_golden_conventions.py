"""Conventions that do not give the lesson's numbers: each is counted here, and has to come out different.

A number that several conventions would reproduce proves little; these show which one the lesson used.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine import catalogue, hardware
from engine.ledger import BF16, LESSON, Convention, Formats, StepLedger, decode, prefill, resident
from engine.roofline import Roof, floor_ns, limit_intensity

ANCHOR = catalogue.load("Qwen/Qwen3.8-27B")
DEVICE = hardware.load("h100-sxm")
ROOF = Roof(DEVICE.peak_flops_per_s("bf16") or 0, DEVICE.bandwidth_bytes_per_s)
COUNTS = ANCHOR.parameters
KV, STATE = 65_536, 150_994_944
BF16_STATE = Formats(state="bf16")


def lesson(**switches: object) -> Convention:
    return replace(LESSON, **switches)  # type: ignore[arg-type]


def ms(step: StepLedger) -> float:
    return floor_ns(step, ROOF) * 1e-6


def memory_ms(moved: float) -> float:
    return moved / ROOF.bytes_per_s * 1e3


def reading(tokens: int, convention: Convention = LESSON, formats: Formats = BF16) -> StepLedger:
    return prefill(ANCHOR, tokens, formats=formats, convention=convention)


def writing(cached: int, convention: Convention = LESSON, formats: Formats = BF16) -> StepLedger:
    return decode(ANCHOR, cached + 1, formats=formats, convention=convention)


def gemm_parameters() -> int:
    """Matrices alone: without convolutions, decays and the small norms."""
    weights = [(w, n) for layer, n in ANCHOR.groups for w in ANCHOR.layer_weights(layer)]
    return ANCHOR.head.parameters + sum(w.parameters * n for w, n in weights if w.use == "matrix")


def largest(resident_bytes: float, per_request: float, memory: float = 80e9) -> int:
    return int((memory - resident_bytes) // per_request)


CHECKPOINT, TRUNK, MATMUL = COUNTS.checkpoint * 2, COUNTS.trunk * 2, COUNTS.matmul * 2
PER_REQUEST = KV * 4096 + STATE
CONV = resident(ANCHOR, convention=replace(LESSON, conv="K")).conv
CONV_KEPT = resident(ANCHOR, convention=replace(LESSON, conv="K-1")).conv

# what is printed, the lesson's way, the ways that are not it: (shown, digits, ours, {name: other})
CASES: dict[str, tuple[float, int, float, dict[str, float]]] = {
    "51.25 GB": (51.25, 2, MATMUL / 1e9, {"matrices alone": gemm_parameters() * 2 / 1e9, "trunk": TRUNK / 1e9}),
    "matmul params": (
        25_623_939_584,
        0,
        COUNTS.matmul,
        {"matrices alone": gemm_parameters(), "with hidden norms": COUNTS.matmul + COUNTS.hidden_norms},
    ),
    "prefill of 4": (
        15.34,
        2,
        ms(reading(4)),
        {
            "state read and written": memory_ms(reading(4).bytes.total + STATE),
            "no state": memory_ms(reading(4).bytes.total - STATE),
            "state in BF16": ms(reading(4, formats=BF16_STATE)),
        },
    ),
    "decode after 4": (
        15.39,
        2,
        ms(writing(4)),
        {"state only read": memory_ms(writing(4).bytes.total - STATE), "BF16": ms(writing(4, formats=BF16_STATE))},
    ),
    "prefill of 2048": (
        106.903,
        3,
        ms(reading(2048)),
        {
            "delta net FLOPs": ms(reading(2048, lesson(recurrence="recurrent"))),
            "no attention": 2 * COUNTS.matmul * 2048 / ROOF.flops_per_s * 1e3,
            "full square": ms(reading(2048, lesson(pairs="square"))),
            "head at the last position": ms(reading(2048, lesson(head="last"))),
        },
    ),
    "decode over prefill token": (
        294.8,
        1,
        ms(writing(4)) / ms(reading(2048)) * 2048,
        {
            "delta net FLOPs": ms(writing(4)) / ms(reading(2048, lesson(recurrence="recurrent"))) * 2048,
            "full square": ms(writing(4)) / ms(reading(2048, lesson(pairs="square"))) * 2048,
            "2NT alone": ms(writing(4)) / (2 * COUNTS.matmul / ROOF.flops_per_s * 1e3),
        },
    ),
    "crossover": (
        4608,
        0,
        2 * STATE / KV,
        {"state only read": STATE / KV, "with conv state": 2 * (STATE + CONV) / KV},
    ),
    "570 MB": (
        570,
        0,
        writing(4096).bytes.per_request / 1e6,
        {"with conv state": writing(4096, lesson(conv="K")).bytes.per_request / 1e6, "state once": PER_REQUEST / 1e6},
    ),
    "58 at once": (
        58,
        0,
        largest(CHECKPOINT, PER_REQUEST),
        {
            "matmul params": largest(MATMUL, PER_REQUEST),
            "trunk": largest(TRUNK, PER_REQUEST),
            "80 GiB": largest(CHECKPOINT, PER_REQUEST, 80 * 2**30),
            "conv state of K": largest(CHECKPOINT, PER_REQUEST + CONV),
            "conv state of K-1": largest(CHECKPOINT, PER_REQUEST + CONV_KEPT),
            "bytes moved": largest(CHECKPOINT, PER_REQUEST + STATE),
        },
    ),
    "limit 93": (
        92.67,
        2,
        limit_intensity(writing(4096)),
        {
            "no attention": 2 * COUNTS.matmul / writing(4096).bytes.per_request,
            "delta net FLOPs": limit_intensity(writing(4096, lesson(recurrence="recurrent"))),
        },
    ),
    "2304 tokens/s": (
        2304,
        0,
        58 / memory_ms(MATMUL + 58 * writing(4096).bytes.per_request) * 1e3,
        {"reading the checkpoint": 58 / memory_ms(CHECKPOINT + 58 * writing(4096).bytes.per_request) * 1e3},
    ),
}
PAIRS = [(name, other) for name, case in CASES.items() for other in case[3]]


@pytest.mark.parametrize("name", CASES)
def test_the_lesson_s_convention_gives_the_number(name: str) -> None:
    shown, places, ours, _ = CASES[name]
    assert f"{ours:.{places}f}" == f"{shown:.{places}f}"


@pytest.mark.parametrize(("name", "other"), PAIRS)
def test_another_convention_does_not(name: str, other: str) -> None:
    shown, places, _, others = CASES[name]
    assert f"{others[other]:.{places}f}" != f"{shown:.{places}f}"


def test_the_other_conventions_give_what_is_known_of_them() -> None:
    """The figures those conventions were worked out to give, so that the pairs above differ for the right reason."""
    batches = CASES["58 at once"][3]
    assert (batches["matmul params"], batches["trunk"], batches["80 GiB"]) == (68, 62, 72)
    assert (batches["conv state of K"], batches["conv state of K-1"], batches["bytes moved"]) == (57, 57, 42)
    long = CASES["prefill of 2048"][3]
    known = {"no attention": "106.07", "full square": "107.74", "head at the last position": "101.64"}
    assert {name: f"{long[name]:.2f}" for name in known} == known
    assert f"{CASES['crossover'][3]['with conv state']:.0f}" == "4728"
    assert f"{CASES['limit 93'][3]['no attention']:.1f}" == "89.8"
