"""Every family's logits against transformers', through prefill and cached steps, and the same tokens one by one."""

from __future__ import annotations

import pytest
import torch
from family_helpers import CONFIGS, engine_of, reference, tokens
from model_helpers import engine_logits, reference_logits, worst

from engine.model.hybrid import HybridDecoder

CACHED_STEPS = 2
PROMPTS = (1, 3, 64, 65, 130)
TOLERANCE = 1e-4


@pytest.mark.parametrize("kind", CONFIGS)
def test_logits_equal_transformers(kind: str) -> None:
    theirs = reference(kind)
    ours = engine_of(theirs)
    for batch in (1, 3):
        for prompt in PROMPTS:
            ids = tokens(batch, prompt + CACHED_STEPS)
            expected = reference_logits(theirs, ids, prompt)
            found = engine_logits(ours, ids, prompt)
            assert worst(found, expected) < TOLERANCE, (batch, prompt)
            assert all(torch.equal(a.argmax(-1), b.argmax(-1)) for a, b in zip(found, expected, strict=True))
    # Token by token is another path through every mixer: recurrent, one query, one place of the ring at a time.
    stepped = engine_logits(ours, ids, 1)[-1]
    assert worst([stepped], [ours.prefill(ids)]) < 1e-5


@pytest.mark.parametrize("kind", CONFIGS)
def test_bf16_stays_near_fp32(kind: str) -> None:
    """bf16 keeps 8 bits of a number: logits agree as far as rounding allows, which routers may turn another way."""
    theirs = reference(kind)
    exact, ids = engine_of(theirs), tokens(2, 23)
    half = HybridDecoder.from_tensors(exact.spec, theirs.state_dict(), dtype=torch.bfloat16)
    found = engine_logits(half, ids, 20)
    assert all(logits.dtype == torch.float32 for logits in found)
    assert 1e-3 < worst(found, engine_logits(exact, ids, 20)) < 0.25
