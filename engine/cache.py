"""What a decoder remembers between steps: the KV cache, preallocated and able to say its bytes.

Every position has its place from the start, so that a step writes only the new position and reads
the filled ones. (A cache that grows by concatenation copies all of itself at every token.)

Knows nothing of models or of steps: it is given sizes and keeps tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.arena import zeros
from engine.errors import LabError


@dataclass(frozen=True, slots=True)
class CacheBytes:
    """Bytes a cache holds, by kind. `kv_filled` is the part of `kv_allocated` in use; state and conv do not grow."""

    kv_allocated: int = 0
    kv_filled: int = 0
    state: int = 0
    conv: int = 0


class LayerViews(NamedTuple):
    """One layer's share of the cache in one step, as views.

    new: [2, B, Hkv, T, d], where this step's keys and values go.
    keys, values: [B, Hkv, S, d], all positions up to and including this step's.
    """

    new: Tensor
    keys: Tensor
    values: Tensor


def end_within(limit: int, end: int) -> int:
    """`end`, the position after the last one a step takes, if a cache of `limit` positions has room for it.

    Raises:
        LabError: it has not. No cache grows.
    """
    if end > limit:
        raise LabError(
            "Position {position} is beyond the {limit} positions this context was prepared for.",
            position=end,
            limit=limit,
        )
    return end


class KVCache:
    """Keys and values of every layer for a fixed batch and a fixed number of positions.

    One tensor [layers, 2, B, Hkv, positions, d] holds them all: the views a step needs, of every
    layer, are then made by two calls and not by four a layer.
    """

    def __init__(
        self,
        *,
        layers: int,
        batch: int,
        kv_heads: int,
        positions: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # Filled with zeros so that the system hands out the memory now, and not inside a timed step.
        self._kv = zeros((layers, 2, batch, kv_heads, positions, head_dim), dtype, torch.device(device))
        self.batch = batch
        self.positions = positions
        self.length = 0

    @property
    def bytes(self) -> CacheBytes:
        """Bytes allocated for all positions, and bytes of the positions filled so far."""
        allocated = self._kv.nbytes
        return CacheBytes(kv_allocated=allocated, kv_filled=allocated * self.length // max(self.positions, 1))

    @property
    def storage(self) -> Tensor:
        """All of it, [layers, 2, B, Hkv, positions, d]: for kernels that find their places themselves."""
        return self._kv

    def take(self, tokens: int) -> int:
        """Take the next `tokens` positions of every sequence; the first of them.

        Raises:
            LabError: there are fewer positions left than that. The cache never grows.
        """
        start = self.length
        self.length = end_within(self.positions, start + tokens)
        return start

    def extend(self, tokens: int) -> list[LayerViews]:
        """Take the next `tokens` positions of every sequence; return each layer's views for this step.

        Raises:
            LabError: there are fewer positions left than that. The cache never grows.
        """
        start = self.take(tokens)
        end = self.length
        written = self._kv[:, :, :, :, start:end].unbind(0)
        filled = self._kv[:, :, :, :, :end].flatten(0, 1).unbind(0)
        return [LayerViews(*views) for views in zip(written, filled[::2], filled[1::2], strict=True)]

    def reset(self) -> None:
        """Forget every position. Nothing is erased: what is not filled is never read."""
        self.length = 0
