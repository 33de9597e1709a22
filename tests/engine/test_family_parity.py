"""Every family's logits against transformers', through prefill and cached steps, and the same tokens one by one."""

from __future__ import annotations

import pytest
import torch
from family_helpers import CONFIGS, engine_logits, engine_of, reference, reference_logits, tokens, worst

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
