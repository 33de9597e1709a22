"""What layers of different kinds remember: full attention all positions, a window its last W, latent attention one
compressed vector a position, a recurrence a state that never grows.

Everything is allocated before the first step and can say its bytes by kind. Knows nothing of models or of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from engine import spec as specs
from engine.cache import CacheBytes, KVCache, LayerViews, end_within
from engine.spec.types import Mixer


class RingViews(NamedTuple):
    """A window layer's ring [2, B, Hkv, W, d]: position p lies in place p mod W. `start` is the first new position."""

    ring: Tensor
    start: int


class LatentViews(NamedTuple):
    """A latent layer's share: `new` [B, T, r + ro] to be written, `filled` [B, S, r + ro] up to and with this step."""

    new: Tensor
    filled: Tensor


class StateViews(NamedTuple):
    """A recurrent layer's share, both changed in place: state [B, H, dk, dv] in fp32, conv [B, K-1, C]."""

    state: Tensor
    conv: Tensor


Views: TypeAlias = LayerViews | RingViews | LatentViews | StateViews | None


class Memory(Protocol):
    """One layer's memory, of any kind."""

    def extend(self, start: int, end: int) -> Views:
        """What the layer needs in the step over positions start .. end-1."""

    def held(self, positions: int) -> dict[str, tuple[int, int]]:
        """Bytes by kind: (allocated, in use once that many positions were seen)."""


class Window:
    """Keys and values of the last W positions and no more. Their order in the ring does not matter to attention."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._ring = torch.zeros(shape, dtype=dtype, device=device)

    def extend(self, start: int, end: int) -> RingViews:
        """As `Memory.extend`."""
        return RingViews(self._ring, start)

    def held(self, positions: int) -> dict[str, tuple[int, int]]:
        """As `Memory.held`."""
        places = self._ring.shape[3]
        return {"window": (self._ring.nbytes, self._ring.nbytes * min(positions, places) // max(places, 1))}


class Latent:
    """One vector a position: the compressed keys and values, and behind them the rotated key all heads share."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._latent = torch.zeros(shape, dtype=dtype, device=device)

    def extend(self, start: int, end: int) -> LatentViews:
        """As `Memory.extend`."""
        return LatentViews(self._latent[:, start:end], self._latent[:, :end])

    def held(self, positions: int) -> dict[str, tuple[int, int]]:
        """As `Memory.held`."""
        places = self._latent.shape[1]
        return {"latent": (self._latent.nbytes, self._latent.nbytes * positions // max(places, 1))}


class State:
    """A recurrence's state and the last inputs of its convolution. They start at zero with every prompt."""

    def __init__(self, shape: tuple[int, ...], conv: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._state = torch.zeros(shape, dtype=torch.float32, device=device)
        self._conv = torch.zeros(conv, dtype=dtype, device=device)

    def extend(self, start: int, end: int) -> StateViews:
        """As `Memory.extend`."""
        if start == 0:
            self._state.zero_()
            self._conv.zero_()
        return StateViews(self._state, self._conv)

    def held(self, positions: int) -> dict[str, tuple[int, int]]:
        """As `Memory.held`."""
        state, conv = self._state.nbytes, self._conv.nbytes
        return {"state": (state, state), "conv": (conv, conv)}


class Full:
    """All positions of one full-attention layer."""

    def __init__(self, mixer: specs.Attention, batch: int, positions: int, dtype: torch.dtype, device: torch.device):
        self._cache = KVCache(
            layers=1,
            batch=batch,
            kv_heads=mixer.kv_heads,
            positions=positions,
            head_dim=mixer.head_dim,
            dtype=dtype,
            device=device,
        )

    def extend(self, start: int, end: int) -> LayerViews:
        """As `Memory.extend`."""
        self._cache.length = start
        return self._cache.extend(end - start)[0]

    def held(self, positions: int) -> dict[str, tuple[int, int]]:
        """As `Memory.held`."""
        allocated = self._cache.bytes.kv_allocated
        return {"kv": (allocated, allocated * positions // max(self._cache.positions, 1))}


@dataclass(frozen=True, slots=True)
class Nothing:
    """A layer without a mixer remembers nothing."""

    def extend(self, start: int, end: int) -> None:
        """As `Memory.extend`."""

    def held(self, positions: int) -> dict[str, tuple[int, int]]:
        """As `Memory.held`."""
        return {}


class HybridCache:
    """The memories of all layers, in their order, for a fixed batch and a fixed number of positions."""

    def __init__(
        self, layers: Sequence[specs.Layer], batch: int, positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.batch = batch
        self.positions = positions
        self.length = 0
        self._memories = [memory_for(layer.mixer, batch, positions, dtype, device) for layer in layers]

    @property
    def bytes(self) -> CacheBytes:
        """Bytes in the kinds every run records: windows and latents count as KV."""
        kinds = self.bytes_by_kind
        growing = [kinds[name] for name in ("kv", "window", "latent") if name in kinds]
        return CacheBytes(
            kv_allocated=sum(allocated for allocated, _ in growing),
            kv_filled=sum(filled for _, filled in growing),
            state=kinds.get("state", (0, 0))[0],
            conv=kinds.get("conv", (0, 0))[0],
        )

    @property
    def bytes_by_kind(self) -> dict[str, tuple[int, int]]:
        """(allocated, filled) for each kind there is: "kv", "window", "latent", "state", "conv"."""
        total: dict[str, tuple[int, int]] = {}
        for memory in self._memories:
            for kind, (allocated, filled) in memory.held(self.length).items():
                before = total.get(kind, (0, 0))
                total[kind] = (before[0] + allocated, before[1] + filled)
        return total

    def extend(self, tokens: int) -> list[Views]:
        """Take the next `tokens` positions of every sequence; return each layer's views for this step.

        Raises:
            LabError: there are fewer positions left than that. The cache never grows.
        """
        start, end = self.length, end_within(self.positions, self.length + tokens)
        self.length = end
        return [memory.extend(start, end) for memory in self._memories]

    def reset(self) -> None:
        """Forget every position. States are set to zero by the step that starts the next prompt."""
        self.length = 0


def memory_for(mixer: Mixer | None, batch: int, positions: int, dtype: torch.dtype, device: torch.device) -> Memory:
    """The memory a mixer needs: this is where its bytes are decided."""
    if mixer is None:
        return Nothing()
    if isinstance(mixer, specs.Attention):
        if mixer.window is None:
            return Full(mixer, batch, positions, dtype, device)
        return Window((2, batch, mixer.kv_heads, min(mixer.window, positions), mixer.head_dim), dtype, device)
    if isinstance(mixer, specs.LatentAttention):
        return Latent((batch, positions, mixer.cached_width), dtype, device)
    conv = (batch, mixer.kernel - 1, mixer.conv_channels)
    if isinstance(mixer, specs.GatedDeltaNet):
        return State((batch, mixer.value_heads, mixer.key_dim, mixer.value_dim), conv, dtype, device)
    if isinstance(mixer, specs.KimiDelta):
        return State((batch, mixer.heads, mixer.dim, mixer.dim), conv, dtype, device)
    return State((batch, mixer.heads, mixer.head_dim, mixer.state), conv, dtype, device)
