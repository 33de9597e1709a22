"""What a decoder remembers between steps: the KV cache, preallocated and able to say its bytes.

Every position has its place from the start, so that a step writes only the new position and reads
the filled ones. (A cache that grows by concatenation copies all of itself at every token.)

Knows nothing of models or of steps: it is given sizes and keeps tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

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


class Rounded(NamedTuple):
    """Vectors in int8: their numbers, [..., d], and what each vector's are multiplied by, bf16, [...]."""

    numbers: Tensor
    scales: Tensor


class RoundedViews(NamedTuple):
    """As `LayerViews`, of a cache in int8."""

    new: Rounded
    keys: Rounded
    values: Rounded


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


Views = TypeVar("Views", LayerViews, RoundedViews)


class _Places(ABC, Generic[Views]):
    """Places for a fixed batch and a fixed number of positions, taken one behind the other.

    storage: all numbers, [layers, 2, B, Hkv, positions, d]: for kernels that find their places themselves.
    scales: those of an int8 cache, [layers, 2, B, Hkv, positions]; None in other formats.
    """

    def __init__(self, batch: int, positions: int, storage: Tensor, scales: Tensor | None) -> None:
        self.storage = storage
        self.scales = scales
        self.batch = batch
        self.positions = positions
        self.length = 0

    @property
    def bytes(self) -> CacheBytes:
        """Bytes allocated for all positions, and bytes of the positions filled so far."""
        allocated = self.storage.nbytes + (0 if self.scales is None else self.scales.nbytes)
        return CacheBytes(kv_allocated=allocated, kv_filled=allocated * self.length // max(self.positions, 1))

    def take(self, tokens: int) -> int:
        """Take the next `tokens` positions of every sequence; the first of them.

        Raises:
            LabError: there are fewer positions left than that. The cache never grows.
        """
        start = self.length
        self.length = end_within(self.positions, start + tokens)
        return start

    def extend(self, tokens: int) -> list[Views]:
        """Take the next `tokens` positions of every sequence; return each layer's views for this step.

        Raises:
            LabError: there are fewer positions left than that. The cache never grows.
        """
        start = self.take(tokens)
        return self._views(start, self.length)

    @abstractmethod
    def _views(self, start: int, end: int) -> list[Views]:
        """Each layer's views of a step that takes the positions from `start` to before `end`."""

    def reset(self) -> None:
        """Forget every position. Nothing is erased: what is not filled is never read."""
        self.length = 0


class KVCache(_Places[LayerViews]):
    """Keys and values of every layer, in fp32 or bf16.

    One tensor holds them all: the views a step needs, of every layer, are then made by two calls and not by four a
    layer.
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
        shape = (layers, 2, batch, kv_heads, positions, head_dim)
        super().__init__(batch, positions, zeros(shape, dtype, torch.device(device)), None)

    def _views(self, start: int, end: int) -> list[LayerViews]:
        new, keys, values = _cut(self.storage, start, end)
        return [LayerViews(*views) for views in zip(new, keys, values, strict=True)]


class RoundedKVCache(_Places[RoundedViews]):
    """Keys and values of every layer in int8, with a bf16 scale for each key and each value of a head.

    Numbers and scales are a tensor each. What is written is rounded, and what a step reads are the rounded numbers,
    those of its own positions among them.
    """

    scales: Tensor

    def __init__(
        self, *, layers: int, batch: int, kv_heads: int, positions: int, head_dim: int, device: torch.device
    ) -> None:
        shape, place = (layers, 2, batch, kv_heads, positions), torch.device(device)
        numbers = zeros((*shape, head_dim), torch.int8, place)
        super().__init__(batch, positions, numbers, zeros(shape, torch.bfloat16, place))

    def _views(self, start: int, end: int) -> list[RoundedViews]:
        numbers, scales = _cut(self.storage, start, end), _cut(self.scales, start, end)
        views = [[Rounded(*both) for both in zip(*part, strict=True)] for part in zip(numbers, scales, strict=True)]
        return [RoundedViews(*layer) for layer in zip(*views, strict=True)]


AnyKVCache: TypeAlias = KVCache | RoundedKVCache
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
"""The formats of a cache that has no scales."""


def kv_cache(format_: str, **sizes: Any) -> AnyKVCache:
    """An empty cache in "fp32", "bf16" or "int8"; its sizes are those of `KVCache`."""
    return RoundedKVCache(**sizes) if format_ == "int8" else KVCache(dtype=DTYPES[format_], **sizes)


def _cut(kept: Tensor, start: int, end: int) -> tuple[tuple[Tensor, ...], ...]:
    """Of [layers, 2, B, Hkv, positions, ...] each layer's new positions, all its keys so far, and all its values."""
    filled = kept[:, :, :, :, :end].flatten(0, 1).unbind(0)
    return kept[:, :, :, :, start:end].unbind(0), filled[::2], filled[1::2]
