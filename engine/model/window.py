"""What a query may see: all positions, or only the last W of them; and a sink that takes attention to nowhere.

A sink is one learned score a query head that joins the softmax and has no value: attention may add up to less
than 1 (gpt-oss; Xiao et al., 2023). A query's window holds W keys, its own included.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine.model import ops

BLOCK = 512  # queries handled at once where not all see the same
SCORES = 1 << 21
"""Pairs of query and key whose scores one head has in memory at once; fewer queries are then handled together."""


def write_ring_(ring: Tensor, new: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Put positions start .. start+T-1 in their places, p mod W; of a longer prompt only the last W are kept.

    Args:
        ring: [2, B, Hkv, W, d]. new: [2, B, Hkv, T, d], keys and values.

    Returns:
        The filled keys and values, [B, Hkv, min(S, W), d], in the ring's order: attention does not ask for it.
    """
    places, tokens = ring.shape[3], new.shape[3]
    first = start + max(tokens - places, 0)
    here = first % places
    until_end = min(places - here, start + tokens - first)
    kept = new[:, :, :, first - start :]
    ring[:, :, :, here : here + until_end] = kept[:, :, :, :until_end]
    ring[:, :, :, : kept.shape[3] - until_end] = kept[:, :, :, until_end:]
    filled = ring[:, :, :, : min(start + tokens, places)]
    return filled[0], filled[1]


def last_of_ring(ring: Tensor, start: int, count: int) -> Tensor:
    """The `count` positions before `start`, in their order, as a copy: [2, B, Hkv, count, d]."""
    places = torch.arange(start - count, start, device=ring.device) % ring.shape[3]
    return ring[:, :, :, places]


def attend_one(queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, sinks: Tensor | None) -> Tensor:
    """One new position over everything given: [B, 1, Hq, d] -> [B, Hq*d].

    Query heads that share a key head become rows of one small matrix, so that keys and values are read once a group.
    """
    batch, kv_heads, _, size = keys.shape
    groups = queries.reshape(batch, kv_heads, -1, size)
    if sinks is None:
        return F.scaled_dot_product_attention(groups, keys, values, scale=scale).flatten(1)
    return _with_sinks(groups @ keys.mT * scale, values, sinks.view(kv_heads, -1, 1)).flatten(1)


def attend_prompt(
    queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, window: int | None, sinks: Tensor | None
) -> Tensor:
    """The last T of S positions over themselves and those before: queries [B, T, Hq, d], keys and values
    [B, Hkv, S, d] -> [B*T, Hq*d].

    With a window shorter than that, blocks of queries look only at the keys some of them can see.
    """
    tokens, filled = queries.shape[1], keys.shape[2]
    queries, before = queries.transpose(1, 2), filled - tokens
    if window is None or window >= filled:
        if sinks is None:
            mixed = ops.causal_attention(queries, keys, values, scale)
            return mixed.transpose(1, 2).flatten(2).flatten(0, 1)
        window = filled
    blocks = []
    block = min(BLOCK, max(1, SCORES // min(filled, window + BLOCK)))
    for first in range(0, tokens, block):
        last = min(first + block, tokens)
        lowest, end = max(before + first - window + 1, 0), before + last
        distance = torch.arange(before + first, end, device=keys.device)[:, None] - torch.arange(
            lowest, end, device=keys.device
        )
        seen = (distance >= 0) & (distance < window)
        blocks.append(
            _masked(queries[:, :, first:last], keys[:, :, lowest:end], values[:, :, lowest:end], seen, scale, sinks)
        )
    return torch.cat(blocks, dim=2).transpose(1, 2).flatten(2).flatten(0, 1)


def _masked(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, scale: float, sinks: Tensor | None) -> Tensor:
    """[B, Hq, T, d] over [B, Hkv, S, d] where `seen` [T, S] says so."""
    if sinks is None:
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen, scale=scale, enable_gqa=True)
    grouped = torch.unflatten(queries, 1, (keys.shape[1], -1))  # [B, Hkv, G, T, d]
    scores = (grouped @ keys[:, :, None].mT * scale).masked_fill(~seen, float("-inf"))
    return _with_sinks(scores, values[:, :, None], sinks.view(keys.shape[1], -1, 1, 1)).flatten(1, 2)


def _with_sinks(scores: Tensor, values: Tensor, sinks: Tensor) -> Tensor:
    """softmax([scores, sink]) without its last column, times values; the sum in fp32."""
    extended = torch.cat((scores, sinks.expand(*scores.shape[:-1], 1)), dim=-1)
    shares = extended.softmax(-1, dtype=torch.float32)[..., :-1]
    return shares.to(values.dtype) @ values
