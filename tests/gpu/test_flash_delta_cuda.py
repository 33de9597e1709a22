"""The gated delta rule by flash-linear-attention: plain torch's outputs and states, for one token, some and many."""

from __future__ import annotations

import pytest
import torch

from engine import flash_delta
from engine.model import delta_rule

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(flash_delta.version() is None, reason="needs flash-linear-attention"),
]


@pytest.mark.parametrize("tokens", [1, 17, 64, 65, 300])
@torch.inference_mode()
def test_the_librarys_rule_is_plain_torchs(tokens: int) -> None:
    torch.manual_seed(tokens)
    shape, device = (2, tokens, 4), "cuda"
    q = delta_rule.normalise(torch.randn(*shape, 128, device=device)) * 128**-0.5
    k = delta_rule.normalise(torch.randn(*shape, 128, device=device))
    v = torch.randn(*shape, 128, device=device)
    log_decay, strength = -torch.rand(shape, device=device), torch.rand(shape, device=device)
    states = [torch.randn(2, 4, 128, 128, generator=torch.Generator().manual_seed(1)).cuda() for _ in range(2)]
    plain = delta_rule.advance(q, k, v, log_decay, strength, states[0], delta_rule.chunks)
    found = flash_delta.advance(q, k, v, log_decay, strength, states[1], torch.bfloat16)
    for expected, got in ((plain, found.float()), tuple(states)):
        assert float((expected - got).norm() / expected.norm()) < 2e-2
