"""How flash-linear-attention is called, without it: by a stand-in that does what its reference says, token by token.

The library itself computes on GPUs only; `tests/gpu` compares it where there is one.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from family_helpers import CONFIGS, tokens
from torch import Tensor

from engine import device, fitting, flash_delta, spec
from engine.ceilings import Ceilings
from engine.model import Model, delta_rule
from engine.random_weights import RandomTensors


def stand_in(
    *, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float, initial_state: Tensor,
    output_final_state: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """q, k [B, T, H, K], v [B, T, H, V], g and beta [B, T, H], a state [B, H, K, V]: outputs and another state."""
    assert output_final_state
    state, out = initial_state.clone(), []
    for t in range(q.shape[1]):
        state = state * g[:, t, :, None, None].exp()
        surprise = v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t].float())
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t].float(), surprise * beta[:, t, :, None])
        out.append(torch.einsum("bhkv,bhk->bhv", state, q[:, t].float() * scale))
    return torch.stack(out, 1), state


@pytest.fixture
def with_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_delta, "_kernels", lambda: (stand_in, stand_in))


@pytest.mark.parametrize("count", [1, 5, 64, 130])
def test_one_call_is_a_step_of_the_rule(count: int, with_library: None) -> None:
    torch.manual_seed(count)
    q, k, v = (torch.randn(2, count, 3, size) for size in (16, 16, 8))
    q, k = delta_rule.normalise(q) / 4, delta_rule.normalise(k)
    log_decay, strength = -torch.rand(2, count, 3), torch.rand(2, count, 3)
    state = torch.randn(2, 3, 16, 8)
    states = [state.clone(), state.clone()]
    plain = delta_rule.advance(q, k, v, log_decay, strength, states[0], delta_rule.chunks)
    found = flash_delta.advance(q, k, v, log_decay, strength, states[1], torch.float32)
    assert (plain - found).abs().max() < 1e-4
    assert (states[0] - states[1]).abs().max() < 1e-4


def test_a_model_runs_through_it_where_it_can(with_library: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = spec.read(CONFIGS["qwen3.5"]().to_dict())
    model = Model.from_tensors(tiny, RandomTensors(fitting.wanted_shapes(tiny), zero_centred=True))
    ids = tokens(2, 12)

    def logits() -> list[Tensor]:
        return [model.prefill(ids[:, :9]), *(model.decode(column) for column in ids[:, 9:].T)]

    plain, called = logits(), []
    monkeypatch.setattr(flash_delta, "usable", lambda *where: called.append(where) or True)
    for expected, found in zip(plain, logits(), strict=True):
        assert (expected - found).abs().max() < 1e-4
    assert set(called) == {(torch.device("cpu"), torch.float32)}


@pytest.mark.parametrize(
    ("place", "dtype", "kernels", "expected"),
    [
        ("cuda", torch.bfloat16, None, True),
        ("cuda", torch.float32, None, False),
        ("cuda", torch.bfloat16, "torch", False),
        ("cpu", torch.bfloat16, None, False),
    ],
)
def test_it_is_for_half_precision_on_cuda(
    place: str, dtype: torch.dtype, kernels: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flash_delta, "version", lambda: "9.9")
    monkeypatch.delenv("ROOFLINE_LAB_KERNELS", raising=False)
    if kernels:
        monkeypatch.setenv("ROOFLINE_LAB_KERNELS", kernels)
    assert flash_delta.usable(torch.device(place), dtype) == expected
    assert (flash_delta.named(torch.device(place)) == "flash-linear-attention 9.9") == (place == "cuda" and not kernels)


def test_ceilings_measured_with_it_are_not_those_without_it() -> None:
    here = device.facts("cpu").model_copy(update={"kind": "cuda"})

    def key(**kernels: Any) -> str:
        return Ceilings.key(here.model_copy(update={"kernels": kernels}))

    assert key(gated_delta="torch") != key(gated_delta="flash-linear-attention 0.4")
    assert key(gated_delta="flash-linear-attention 0.4") != key(gated_delta="flash-linear-attention 0.5")
