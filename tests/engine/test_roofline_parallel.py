"""Tensor parallelism: what is split, what is repeated on every device, and what the collectives cost."""

from __future__ import annotations

import pytest

from engine import catalogue
from engine.ledger import decode, resident
from engine.parallel import Link, communication_s, shard
from engine.predict import predict

ANCHOR = catalogue.load("Qwen/Qwen3.8-27B")
LLAMA = catalogue.load("meta-llama/Llama-3.1-8B")


@pytest.mark.parametrize(("devices", "kv_heads"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_kv_heads_are_split_while_there_are_enough_and_then_repeated(devices: int, kv_heads: int) -> None:
    """The anchor's four KV heads: its cache stops shrinking beyond four devices."""
    assert resident(shard(ANCHOR, devices), max_tokens=1).kv_allocated == kv_heads * 16 * 2 * 256 * 2


def test_matrices_are_split_and_norms_and_routers_are_not() -> None:
    def of(name: str, devices: int) -> int:
        spec = shard(catalogue.load("Qwen/Qwen3-30B-A3B"), devices)
        return sum(op.bytes.weights for op in decode(spec, 10).ops if op.name == name)

    for split in ("o_proj", "lm_head", "experts_down_proj", "qkv_proj"):
        assert of(split, 4) * 4 == of(split, 1)
    for repeated in ("input_norm", "router", "q_norm"):
        assert of(repeated, 4) == of(repeated, 1)


def test_states_are_split_by_value_heads() -> None:
    assert resident(shard(ANCHOR, 8)).state * 8 == resident(ANCHOR).state


def test_the_latent_cache_is_on_every_device_and_so_are_the_compressions() -> None:
    spec = catalogue.load("deepseek-ai/DeepSeek-V3")
    part = shard(spec, 8)
    assert resident(part, max_tokens=100).kv_allocated == resident(spec, max_tokens=100).kv_allocated
    whole = {op.name: op.bytes.weights for op in decode(spec, 10).ops}
    shared = {op.name: op.bytes.weights for op in decode(part, 10).ops}
    for name in ("kv_a_proj", "q_a_proj"):
        assert shared[name] == whole[name]
    for name in ("q_b_proj", "kv_b_proj", "o_proj"):
        assert shared[name] * 8 == whole[name]


def test_collectives_by_hand() -> None:
    """Two ring all-reduces a layer of B h 2 bytes, a gather of B V 2 bytes of logits, and a call's cost for each."""
    link = Link(bytes_per_s=100e9, call_s=5e-6)
    reduced = 2 * 7 / 8 * 16 * 4096 * 2 / 100e9
    gathered = 7 / 8 * 16 * 128256 * 2 / 100e9
    assert communication_s(LLAMA, 16, 16, 8, link) == pytest.approx(64 * (reduced + 5e-6) + gathered + 5e-6)
    assert communication_s(LLAMA, 16, 16, 1, link) == 0


def test_a_prediction_over_devices_is_labelled_and_adds_up() -> None:
    one, four = (predict("meta-llama/Llama-3.1-8B", "h100-sxm", tp=devices, batch=4) for devices in (1, 4))
    assert "tensor_parallel" not in one
    estimate = four["tensor_parallel"]
    assert (estimate["estimate"], estimate["devices"]) == (True, 4)
    spent = four["decode"]["time_s"] - estimate["decode_communication_s"]
    assert spent == pytest.approx(one["decode"]["time_s"] / 4, rel=0.01)
    assert four["capacity"]["memory_bytes"] == 4 * 80_000_000_000
    # Norms and embedding rows are read on every device, all else once.
    extra = four["decode"]["bytes"]["weights"] - one["decode"]["bytes"]["weights"]
    assert extra == 3 * (65 * 4096 + 4 * 4096) * 2
    assert four["capacity"]["max_batch"] > 4 * one["capacity"]["max_batch"]


def test_the_cost_of_a_call_dominates_at_decode() -> None:
    estimate = predict("meta-llama/Llama-3.1-8B", "h100-sxm", tp=8)["tensor_parallel"]
    assert 65 * estimate["call_s"] / estimate["decode_communication_s"] > 0.9
