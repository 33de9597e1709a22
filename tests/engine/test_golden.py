"""The lesson's printed numbers, each from `predict --preset lesson`, a ratio of two such calls, or the tokenizer.

data/golden.csv lists them with the digits they are printed in; here is how each is obtained.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine import catalogue
from engine.ledger import decode
from engine.predict import predict

ANCHOR = "Qwen/Qwen3.8-27B"
H100, A100, H200 = "h100-sxm", "a100-sxm4-80gb", "h200-sxm"
ROWS = {row["id"]: row for row in csv.DictReader((Path(__file__).parent / "data/golden.csv").open(encoding="utf-8"))}


@cache
def lesson(model: str = ANCHOR, device: str = H100, **case: Any) -> dict[str, Any]:
    return predict(model, device, preset="lesson", **case)


def weights_alone(device: str = H100) -> dict[str, Any]:
    found: dict[str, Any] = lesson(device=device)["decode"]["weights_only"]
    return found


def prefill_per_token() -> float:
    return lesson(prompt_tokens=2048)["prefill"]["time_s"] / 2048


def step_after_4() -> float:
    found: float = lesson(context=4)["decode"]["time_s"]
    return found


def request_bytes(context: int = 4096) -> int:
    moved = lesson(context=context)["decode"]["bytes"]
    return moved["total"] - moved["weights"]


def kv_per_token(model: str = ANCHOR) -> float:
    decode = lesson(model)["decode"]
    return decode["bytes"]["kv_read"] / decode["context"]


def state_traffic() -> int:
    moved = lesson()["decode"]["bytes"]
    return moved["state_read"] + moved["state_write"]


VALUES: dict[str, Callable[[], float]] = {
    "matmul_params": lambda: lesson()["params"]["matmul"],
    "trunk_params": lambda: lesson()["params"]["trunk"],
    "checkpoint_params": lambda: lesson()["params"]["checkpoint"],
    "weight_bytes": lambda: lesson()["decode"]["bytes"]["weights"],
    "flops_only_rate": lambda: 1 / weights_alone()["compute_time_s"],
    "flops_only_time": lambda: weights_alone()["compute_time_s"] * 1e3,
    "weights_only_rate": lambda: 1 / weights_alone()["time_s"],
    "compute_used": lambda: weights_alone()["compute_time_s"] / weights_alone()["time_s"] * 100,
    "ridge_h100": lambda: lesson()["ridge_flop_per_byte"],
    "prefill_4": lambda: lesson(prompt_tokens=4)["prefill"]["time_s"] * 1e3,
    "decode_after_4": lambda: step_after_4() * 1e3,
    "prefill_2048": lambda: lesson(prompt_tokens=2048)["prefill"]["time_s"] * 1e3,
    "prefill_2048_per_token": lambda: prefill_per_token() * 1e3,
    "decode_over_prefill_token": lambda: step_after_4() / prefill_per_token(),
    "kv_per_token": kv_per_token,
    "gdn_state": lambda: lesson()["prefill"]["bytes"]["state_write"],
    "gdn_traffic": state_traffic,
    "kv_state_crossover": lambda: lesson()["limits"]["kv_equals_state_context"],
    "storage_crossover": lambda: lesson()["limits"]["state_equals_replaced_kv_context"],
    "request_bytes_4096": request_bytes,
    "max_batch_4096": lambda: lesson(context=4096)["capacity"]["max_batch"],
    "limit_intensity_4096": lambda: lesson(context=4096)["limits"]["intensity_at_infinite_batch"],
    "throughput_58": lambda: lesson(context=4096, batch=58)["decode"]["tokens_per_s"],
    "a100_step": lambda: weights_alone(A100)["time_s"] * 1e3,
    "h100_step": lambda: weights_alone(H100)["time_s"] * 1e3,
    "a100_to_h100": lambda: weights_alone(A100)["time_s"] / weights_alone(H100)["time_s"],
    "a100_to_h100_flops": lambda: weights_alone(A100)["compute_time_s"] / weights_alone(H100)["compute_time_s"],
    "h200_over_h100": lambda: weights_alone(H100)["time_s"] / weights_alone(H200)["time_s"],
    "qwen3_32b_kv_ratio": lambda: kv_per_token("Qwen/Qwen3-32B") / kv_per_token(),
    "attention_intensity": lambda: lesson()["decode"]["attention"]["intensity"],
}
# One row is the tokenizer's.
ELSEWHERE = {"prompt_tokens"}


def digits(printed: str) -> int:
    """Digits after the point as printed."""
    return len(printed.partition(".")[2])


def test_every_row_is_accounted_for() -> None:
    assert set(ROWS) == set(VALUES) | ELSEWHERE
    assert len(ROWS) == 31


@pytest.mark.parametrize("row", VALUES)
def test_the_lesson_s_number(row: str) -> None:
    printed = ROWS[row]["value"]
    assert f"{VALUES[row]():.{digits(printed)}f}" == f"{float(printed):.{digits(printed)}f}"


@pytest.mark.parametrize("model_id", ["Qwen/Qwen3-0.6B", "meta-llama/Llama-3.1-8B", "google/gemma-3-270m", ANCHOR])
def test_a_token_reads_what_it_multiplies(model_id: str) -> None:
    """In the lesson the weights of a step are two bytes for every matmul parameter, a tied head among them."""
    case = lesson(model_id)
    assert case["decode"]["bytes"]["weights"] == 2 * case["params"]["matmul"]
    assert case["decode"]["weights_only"]["intensity"] == 1


@pytest.mark.parametrize("model_id", catalogue.ids())
def test_a_token_costs_two_flops_for_every_parameter_it_is_multiplied_with(model_id: str) -> None:
    """2N with N the matmul parameters - of experts those the token is routed to - and attention on top."""
    spec = catalogue.load(model_id)
    step = decode(spec, 100, convention="lesson")
    attention = sum(op.flops for op in step.of_kind("attention"))
    # gpt-oss's sinks are parameters that attention itself uses.
    weights = [(weight, count) for layer, count in spec.groups for weight in spec.layer_weights(layer)]
    sinks = sum(weight.parameters * count for weight, count in weights if weight.op == "attention")
    assert step.flops - attention == 2 * (spec.parameters.matmul - sinks)


def test_the_lesson_s_other_toggles() -> None:
    # BF16 state
    case = lesson(context=4096, batch=58, state="bf16")
    assert f"{lesson(context=4, state='bf16')['decode']['time_s'] * 1e3:.3f}" == "15.343"
    assert case["limits"]["kv_equals_state_context"] == 2304
    assert case["capacity"]["max_batch"] == 71
    assert f"{case['limits']['intensity_at_infinite_batch']:.1f}" == "126.0"
    assert f"{case['decode']['tokens_per_s']:.0f}" == "2571"
    # FP8 KV beside an FP32 state
    case = lesson(context=4096, kv="fp8")
    moved = case["decode"]["bytes"]
    assert f"{(moved['total'] - moved['weights']) / 1e6:.1f}" == "436.2"
    assert case["capacity"]["max_batch"] == 85
    assert f"{case['limits']['intensity_at_infinite_batch']:.1f}" == "121.2"
    assert case["decode"]["attention"]["intensity"] == 12


def test_the_anchor_on_other_cards_and_batches() -> None:
    h200 = lesson(device=H200)
    assert f"{1 / h200['decode']['weights_only']['time_s']:.2f}" == "93.66"
    assert h200["capacity"]["max_batch"] == 203
    alone = lesson(context=4096)["decode"]
    assert (f"{alone['time_s'] * 1e3:.3f}", f"{alone['tokens_per_s']:.2f}") == ("15.468", "64.65")
    assert f"{alone['intensity']:.3f}" == "1.020"
    together = lesson(context=4096, batch=58)["decode"]
    assert f"{together['intensity']:.1f}" == "36.4"
    assert together["weights_only"]["intensity"] == 58
    assert lesson(context=32768)["capacity"]["max_batch"] == 10
    assert lesson()["limits"]["compute_bound_prompt_tokens"] == 297


def test_the_dense_model_beside_the_anchor() -> None:
    case = lesson("Qwen/Qwen3-32B", context=4096)
    assert case["params"]["matmul"] == 31_983_550_464
    assert f"{case['decode']['bytes']['weights'] / 1e9:.2f}" == "63.97"
    assert f"{1 / case['decode']['weights_only']['time_s']:.1f}" == "52.4"
    assert case["capacity"]["max_batch"] == 13
    assert lesson("Qwen/Qwen3-32B", context=32768)["capacity"]["max_batch"] == 1
    assert f"{case['limits']['intensity_at_infinite_batch']:.1f}" == "67.6"
    assert case["decode"]["attention"]["intensity"] == 8
    assert case["limits"]["kv_equals_state_context"] is None
