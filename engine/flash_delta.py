"""The gated delta rule by flash-linear-attention's Triton kernels, where that library is installed and CUDA computes.

What is computed is in `engine.model.delta_rule`; the library's reference calls the same numbers q, k, v [B, T, H, d],
g (the logarithm of the decay) and beta [B, T, H]. It returns a new state [B, H, dk, dv], which is copied to its place:
one more writing and reading of it than a step needs.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from engine import settings

MOST_ONE_BY_ONE = 64
"""Tokens up to which the recurrent kernel, one token after the other, takes less time than the one in chunks."""


def usable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether it computes for a model here: its kernel for many tokens takes half precision only."""
    half = dtype in (torch.bfloat16, torch.float16)
    return half and device.type == "cuda" and settings.kernels() != "torch" and version() is not None


def named(device: torch.device) -> str:
    """What computes the rule on a device for a model in half precision, as records say it."""
    return f"flash-linear-attention {version()}" if usable(device, torch.bfloat16) else "torch"


@cache
def version() -> str | None:
    """Which flash-linear-attention is installed, None without one."""
    if find_spec("fla") is None or find_spec("triton") is None:
        return None
    names = [name for name in ("flash-linear-attention", "fla-core") if _is_installed(name)]
    return metadata.version(names[0]) if names else None


def advance(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor, dtype: torch.dtype
) -> Tensor:
    """The tokens of a step behind `state`, as `delta_rule.advance`.

    Args:
        q, k: [B, T, H, dk], normalised, queries scaled. v: [B, T, H, dv]. log_decay, strength: [B, T, H].
        state: [B, H, dk, dv] fp32, changed in place. dtype: the model's, which many tokens are multiplied in.

    Returns:
        [B, T, H, dv], fp32 or `dtype`.
    """
    one_by_one, in_chunks = _kernels()
    rule = one_by_one
    if q.shape[1] > MOST_ONE_BY_ONE:
        rule = in_chunks
        q, k, v, strength = (tensor.to(dtype) for tensor in (q, k, v, strength))
    found: tuple[Tensor, Tensor] = rule(
        q=q, k=k, v=v, g=log_decay, beta=strength, scale=1.0, initial_state=state, output_final_state=True
    )
    state.copy_(found[1])
    return found[0]


@cache
def _kernels() -> tuple[Any, Any]:
    """For few tokens, for many."""
    module = import_module("fla.ops.gated_delta_rule")
    return module.fused_recurrent_gated_delta_rule, module.chunk_gated_delta_rule


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
