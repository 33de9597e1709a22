"""The gated delta rule: a state S of fixed size that forgets, corrects itself and is read (Yang et al., 2024).

For each head, with decay e^g, write strength beta, key k, value v and query q, one token does

    S <- e^g S                          forget
    S <- S + k (beta (v - S^T k))^T     write what the state did not yet say of this key
    o  = S^T q                          read

`step` does this for one token (on a CPU `compiled_step`, where the kernels can be used); `chunks` does the same for
many, 64 at a time, as matrix products. Everything is fp32: rounding the state once a token adds up. Shapes: B
sequences, H heads, T tokens, dk key and dv value size.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine import kernels

CHUNK = 64


def normalise(x: Tensor) -> Tensor:
    """x / |x| over the last dimension, in fp32; the 1e-6 under the root is the reference kernel's."""
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def advance(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    log_decay: Tensor,
    strength: Tensor,
    state: Tensor,
    chunks: Callable[..., Tensor],
) -> Tensor:
    """The tokens of a step behind `state`: one by `step`, more by `chunks`.

    Args:
        queries, keys: [B, T, H, dk], normalised, queries scaled. values: [B, T, H, dv].
        log_decay: [B, T, H] for one decay a head, [B, T, H, dk] for one a channel. strength: [B, T, H].
        state: [B, H, dk, dv], changed in place. chunks: takes all of them with heads before tokens.

    Returns:
        [B, T, H, dv].
    """
    if queries.shape[1] == 1:
        decay = log_decay[:, 0, :, None] if log_decay.ndim == 3 else log_decay[:, 0]
        one = compiled_step if is_compiled(state) else step
        return one(queries[:, 0], keys[:, 0], values[:, 0], decay, strength[:, 0, :, None], state)[:, None]
    by_head = (tensor.transpose(1, 2) for tensor in (queries, keys, values, log_decay, strength))
    return chunks(*by_head, state).transpose(1, 2)


def is_compiled(state: Tensor) -> bool:
    """Whether the compiled kernels move this state on by one token."""
    return state.device.type == "cpu" and state.is_contiguous() and kernels.usable()


def compiled_step(
    queries: Tensor, keys: Tensor, values: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor
) -> Tensor:
    """As `step`, in one pass over the state (`engine.kernels.delta`)."""
    # Not at the top: it needs numba, which may be missing.
    from engine.kernels import delta

    return delta.step(queries, keys, values, log_decay.exp(), strength, state)


def step(queries: Tensor, keys: Tensor, values: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor) -> Tensor:
    """One token. The state is read once for both of its uses, and then updated in place.

    With S the old state: S^T k and S^T q of the decayed state are e^g times those of S, and reading after
    the write adds (q.k) times what was written.

    Args:
        queries, keys: [B, H, dk], normalised, queries scaled. values: [B, H, dv].
        log_decay: [B, H, 1] for one decay a head, [B, H, dk] for one a channel.
        strength: [B, H, 1]. state: [B, H, dk, dv], changed in place.

    Returns:
        [B, H, dv].
    """
    decay = log_decay.exp()
    probes = torch.stack((keys, queries), dim=2) * decay[:, :, None]
    remembered, read = (probes @ state).unbind(2)
    written = strength * (values - remembered)
    state.mul_(decay[..., None]).addcmul_(keys[..., None], written[:, :, None])
    return read + (queries * keys).sum(-1, keepdim=True) * written


def chunks(queries: Tensor, keys: Tensor, values: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor) -> Tensor:
    """Many tokens behind `state`, one decay a head; the same result as `step` token by token.

    Args:
        queries, keys: [B, H, T, dk], normalised, queries scaled. values: [B, H, T, dv].
        log_decay, strength: [B, H, T]. state: [B, H, dk, dv], changed in place.

    Returns:
        [B, H, T, dv].
    """
    out = []
    for first in range(0, queries.shape[2], CHUNK):
        now = slice(first, first + CHUNK)
        q, k, v = queries[:, :, now], keys[:, :, now], values[:, :, now]
        out.append(_chunk(q, k, v, log_decay[:, :, now], strength[:, :, now], state))
    return torch.cat(out, dim=2)


def _chunk(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor) -> Tensor:
    """Up to 64 tokens: what each writes depends on those before it, a triangular system of equations."""
    since_start = log_decay.cumsum(-1)[..., None]  # [B, H, C, 1]
    between = (since_start - since_start.mT).tril().exp().tril()  # decay from j to i, for j <= i
    written = solve_writes(
        overlaps=(k @ k.mT) * between,
        surprise=v - (k * since_start.exp()) @ state,
        strength=strength,
    )
    out = (q * since_start.exp()) @ state + ((q @ k.mT) * between) @ written
    to_end = since_start[:, :, -1:] - since_start
    state.mul_(since_start[:, :, -1:].exp()).add_((k * to_end.exp()).mT @ written)
    return out


def solve_writes(*, overlaps: Tensor, surprise: Tensor, strength: Tensor) -> Tensor:
    """What every token of a chunk writes: w_i = beta_i (surprise_i - sum_{j<i} overlap_ij w_j).

    Args:
        overlaps: [B, H, C, C], k_i.k_j with the decay from j to i; only j < i is used.
        surprise: [B, H, C, dv], value minus what the state at the chunk's start says. strength: [B, H, C].
    """
    scale = strength[..., None]
    written: Tensor = torch.linalg.solve_triangular(
        (overlaps * scale).tril(-1), surprise * scale, upper=False, unitriangular=True
    )
    return written
