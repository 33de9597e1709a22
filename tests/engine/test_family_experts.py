"""The experts a step says it hit are those that transformers' own routers chose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from family_helpers import engine_of, reference, tokens

from engine import ledger
from engine.ledger import Formats
from engine.ledger.routed import bytes_with_experts, routed_bytes

PROMPT = 6
ROUTED = ["qwen3-moe", "qwen3.5-moe", "qwen3-next", "mixtral", "gpt-oss", "deepseek-v3", "kimi-linear"]
ROUTED.append("granite-hybrid-moe")


@contextmanager
def choices(model: Any) -> Iterator[list[int]]:
    """Counts, for every router that runs meanwhile, the distinct experts among those it returns."""
    found: list[int] = []

    def count(module: Any, inputs: Any, outputs: Any) -> None:
        found.append(len(outputs[2].unique()))

    routers = [module for module in model.modules() if type(module).__name__.lower().endswith("topkrouter")]
    assert routers
    handles = [router.register_forward_hook(count) for router in routers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.parametrize("kind", ROUTED)
def test_experts_hit_are_the_reference_routers_choice(kind: str) -> None:
    theirs = reference(kind)
    ours = engine_of(theirs)
    for batch in (1, 2, 8):
        ids = tokens(batch, PROMPT + 1)
        cache = transformers.DynamicCache(config=theirs.config)
        for step in (ids[:, :PROMPT], ids[:, PROMPT:]):
            with torch.no_grad(), choices(theirs) as expected:
                theirs(step, cache=cache, use_cache=True)
            _ = ours.prefill(step) if step.shape[1] > 1 else ours.decode(step[:, 0])
            assert ours.experts_hit == tuple(expected)


def test_bytes_read_are_those_of_the_experts_hit() -> None:
    ours = engine_of(reference("qwen3-moe"))
    ours.prefill(tokens(1, PROMPT))
    ours.decode(tokens(1, 1)[:, 0])
    assert ours.experts_hit == (3, 3, 3)  # one token, top 3, and layer 1 is dense
    one = 3 * 48 * 24 * 4  # gate, up and down of width 24 on a hidden size of 48, fp32
    assert ours.expert_bytes == 9 * one


def test_a_steps_bytes_are_those_its_router_chose() -> None:
    """The ledger expects; the model says; what is recorded is the ledger with the model's experts."""
    ours = engine_of(reference("qwen3-moe"))
    formats = Formats(weights="fp32", kv="fp32", state="fp32")
    one = 3 * 48 * 24 * 4
    for batch in (1, 2, 8):
        ours.prefill(tokens(batch, PROMPT))
        ours.decode(tokens(batch, 1)[:, 0])
        step = ledger.decode(ours.spec, PROMPT + 1, batch=batch, formats=formats)
        expected = 8 * (1 - (1 - 3 / 8) ** batch)
        assert routed_bytes(step) == pytest.approx(3 * expected * one, abs=3)
        found = bytes_with_experts(step, ours.expert_bytes)
        assert found.weights - (step.bytes.weights - routed_bytes(step)) == sum(ours.experts_hit) * one
        assert found.per_request == step.bytes.per_request
    dense = ledger.decode(engine_of(reference("qwen3.5")).spec, 5)
    assert bytes_with_experts(dense, 0) == dense.bytes


def test_hits_stay_within_what_chance_allows() -> None:
    """Distinct experts lie between top_k and all of them, and grow with the batch, near the expectation or below."""
    ours = engine_of(reference("qwen3-moe"))
    part = ours.spec.layers[0].feed_forward
    before = 0.0
    for batch in (1, 2, 8):
        hits = []
        for seed in range(8):
            ids = torch.randint(0, 257, (batch, 4), generator=torch.Generator().manual_seed(seed))
            ours.prefill(ids[:, :3])
            ours.decode(ids[:, 3])
            hits += ours.experts_hit
        mean = sum(hits) / len(hits)
        assert all(3 <= hit <= min(3 * batch, 8) for hit in hits)
        assert before < mean <= part.expected_distinct(batch) + 0.5  # type: ignore[union-attr]
        before = mean


def test_a_dense_model_hits_no_experts() -> None:
    ours = engine_of(reference("qwen3.5"))
    ours.prefill(tokens(1, 3))
    assert ours.experts_hit == ()
    assert ours.expert_bytes == 0
