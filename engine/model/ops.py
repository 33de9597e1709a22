"""Everything a step computes between the linears, each as one plain function on plain tensors.

A layer is, in this order:

    rms_norm -> qkv linear -> (rms_norm of q and k heads, Qwen3) -> rotate_heads -> write_cache
      -> prefill_attention | decode_attention -> o linear -> add_residual
    rms_norm -> gate/up linear -> swiglu -> down linear -> add_residual

Functions ending in an underscore change their first argument. Shapes: B sequences, T new tokens each,
S positions filled, Hq query heads over Hkv key/value heads, d head size, f MLP width, h hidden size.
Activations between layers are [B*T, h]: a linear does not care which sequence a row belongs to.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine.cache import Rounded
from engine.model.packed import Packed, to_int8

MASK_SIZE = 1 << 20
"""Pairs of query and key that one mask covers: 4 MB of numbers."""
SPELLED_OUT = 1 << 22
"""Numbers of a cache in another format that are spelled out at a time: 16 MB of keys and as many of values."""


def embed(ids: Tensor, table: Tensor | Packed) -> Tensor:
    """Rows of `table` [V, h] for `ids` of any shape, flattened: [B*T, h], a fresh tensor."""
    return table.rows(ids.flatten()) if isinstance(table, Packed) else F.embedding(ids.flatten(), table)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension, summed in fp32 (Zhang and Sennrich, 2019)."""
    return F.rms_norm(x, weight.shape, weight, eps)


def rotate_heads_(heads: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Turn each head by its position's angles, in place (RoFormer, Su et al., 2021; the half-split layout).

    Dimension i pairs with i + d/2: out[i] = x[i] cos - x[i+d/2] sin, out[i+d/2] = x[i+d/2] cos + x[i] sin.
    Rolling a head by half brings each partner into place; its sign is in `signed_sin`.

    Args:
        heads: [B, T, H, d], changed in place.
        cos, signed_sin: [T, 1, d], as `engine.model.rotary.RotaryTable` makes them.
    """
    partners = heads.roll(heads.shape[-1] // 2, -1)
    return heads.mul_(cos).addcmul_(partners, signed_sin)


def write_cache_(new: Tensor | Rounded, heads: Tensor) -> None:
    """Copy this step's keys and values to their places, in the cache's format.

    Args:
        new: [2, B, Hkv, T, d], a view into the cache.
        heads: [B, T, 2*Hkv, d], the key heads and then the value heads.
    """
    batch, tokens, both, size = heads.shape
    ordered = heads.view(batch, tokens, 2, both // 2, size).permute(2, 0, 3, 1, 4)
    if isinstance(new, Rounded):
        for place, rounded in zip(new, to_int8(ordered), strict=True):
            place.copy_(rounded)
    else:
        new.copy_(ordered)


def prefill_attention(queries: Tensor, keys: Tensor | Rounded, values: Tensor | Rounded) -> Tensor:
    """Causal attention of the last T positions over all S, scaled by 1/sqrt(d): a prompt's (S is T), or a chunk's.

    Args:
        queries: [B, T, Hq, d]. keys, values: [B, Hkv, S, d], as the cache holds them.

    Returns:
        [B*T, Hq*d], ready for the output linear.
    """
    return _over(_prefill_attention, queries, keys, values)


def _prefill_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    mixed = causal_attention(queries.transpose(1, 2), keys, values)
    return mixed.transpose(1, 2).flatten(2).flatten(0, 1)


def _over(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor],
    queries: Tensor,
    keys: Tensor | Rounded,
    values: Tensor | Rounded,
) -> Tensor:
    """Attention over a cache in whatever format. One that is not computed in is spelled out a few heads at a time.

    attend: as `prefill_attention`, over keys and values in the queries' dtype.
    """
    if isinstance(keys, Tensor) and isinstance(values, Tensor) and keys.dtype == values.dtype == queries.dtype:
        return attend(queries, keys, values)
    batch, kv_heads, filled, size = (keys.numbers if isinstance(keys, Rounded) else keys).shape
    group, at_once = queries.shape[2] // kv_heads, max(1, SPELLED_OUT // (batch * filled * size))
    mixed = []
    for first in range(0, kv_heads, at_once):
        heads = slice(first, min(kv_heads, first + at_once))
        theirs = queries[:, :, group * heads.start : group * heads.stop]
        mixed.append(attend(theirs, spelled_out(keys, heads, queries.dtype), spelled_out(values, heads, queries.dtype)))
    return torch.cat(mixed, dim=1)


def spelled_out(kept: Tensor | Rounded, heads: slice, dtype: torch.dtype) -> Tensor:
    """Some heads' keys or values, [B, heads, S, d], as the numbers they stand for."""
    if isinstance(kept, Rounded):
        return kept.numbers[:, heads].to(dtype).mul_(kept.scales[:, heads, :, None].to(dtype))
    return kept[:, heads].to(dtype)


def causal_attention(queries: Tensor, keys: Tensor, values: Tensor, scale: float | None = None) -> Tensor:
    """The last T of S positions, each over itself and all before it.

    torch's own causal mask counts from the first key, which is right where T is S, and one token sees all. Else a mask
    says what is seen; it is made for as many queries at once as keep it small, whatever T and S are.

    Args:
        queries: [B, Hq, T, d]. keys: [B, Hkv, S, d]. values: [B, Hkv, S, dv]. scale: None takes 1/sqrt(d).

    Returns:
        [B, Hq, T, dv].
    """
    tokens, filled = queries.shape[2], keys.shape[2]
    if tokens in (1, filled):
        return F.scaled_dot_product_attention(queries, keys, values, is_causal=tokens > 1, scale=scale, enable_gqa=True)
    mixed = []
    block = max(1, MASK_SIZE // filled)
    for first in range(0, tokens, block):
        last = min(first + block, tokens)
        end = filled - tokens + last
        seen = torch.ones(last - first, end, dtype=torch.bool, device=keys.device).tril_(end - (last - first))
        mixed.append(
            F.scaled_dot_product_attention(
                queries[:, :, first:last],
                keys[:, :, :end],
                values[:, :, :end],
                attn_mask=seen,
                scale=scale,
                enable_gqa=True,
            )
        )
    return torch.cat(mixed, dim=2)


def decode_attention(queries: Tensor, keys: Tensor | Rounded, values: Tensor | Rounded) -> Tensor:
    """Attention of one new position over all filled ones, scaled by 1/sqrt(d).

    The Hq/Hkv query heads that share a key head become rows of one small matrix, so that each key and
    value is read once per group and not once per query head. One position sees all: there is no mask.

    Args:
        queries: [B, 1, Hq, d]. keys, values: [B, Hkv, S, d], as the cache holds them.

    Returns:
        [B, Hq*d], ready for the output linear.
    """
    return _over(_decode_attention, queries, keys, values)


def _decode_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    batch, kv_heads, _, size = keys.shape
    groups = queries.view(batch, kv_heads, -1, size)
    return F.scaled_dot_product_attention(groups, keys, values).flatten(1)


def swiglu_(gate_up: Tensor) -> Tensor:
    """silu(gate) * up (Shazeer, 2020): [rows, 2f] in, its first half changed in place and returned, [rows, f]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate, inplace=True).mul_(up)


def add_residual_(x: Tensor, update: Tensor) -> Tensor:
    """x + update, in place."""
    return x.add_(update)
