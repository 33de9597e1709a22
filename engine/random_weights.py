"""Random weights at a model's true shapes: the same in every process, on every machine, in any order.

A matrix is uniform with variance 1 / fan-in, which keeps a normalised input at its scale (LeCun et al., "Efficient
BackProp", 1998), so logits have a standard deviation near 1. What scales by one is one, what is added is zero.
A tensor larger than BLOCK is overlapping windows of one block of numbers: no two of its rows are equal, and making
it takes the memory and the time of the block alone. Whoever loads the model copies it out.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from engine.source import RANDOM_RECIPE

BLOCK = 1 << 22
"""Numbers made for one tensor at most (16 MB), unless its rows are longer or more than that."""

_ADDED = re.compile(r"(bias|\.A_log)$")
# The norms that multiply by 1 + w where a family centres them on zero; gated ones are never centred.
_CENTRED = re.compile(r"(layernorm|\.q_norm|\.k_norm|^model\.norm)\.weight$")
_KEPT = 3


class RandomTensors(Mapping[str, Tensor]):
    """Made when asked for; the last few are kept, so that a loader may look at q, k and v and then take them.

    Args:
        shapes: every tensor under the names that the engine's readers use, experts stacked.
        dtype: what they are given in.
        zero_centred: whether norms multiply by 1 + w.
    """

    def __init__(
        self, shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype = torch.float32, *, zero_centred: bool = False
    ) -> None:
        self._shapes = shapes
        self._dtype = dtype
        self._zero_centred = zero_centred
        self._kept: OrderedDict[str, Tensor] = OrderedDict()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._kept:
            tensor = self._make(name, self._shapes[name])
            while len(self._kept) >= _KEPT:
                self._kept.popitem(last=False)
            self._kept[name] = tensor
        return self._kept[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def _make(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if _ADDED.search(name) or (self._zero_centred and _CENTRED.search(name)):
            return torch.zeros(1, dtype=self._dtype).expand(shape)
        if len(shape) == 1:
            return torch.ones(1, dtype=self._dtype).expand(shape)
        columns, rows = shape[-1], math.prod(shape[:-1])
        count = min(rows * columns, max(BLOCK, rows + columns))
        seed = hashlib.sha256(f"{RANDOM_RECIPE} {name}".encode()).digest()
        block = torch.from_numpy(_uniform(count, seed, bound=math.sqrt(3 / columns))).to(self._dtype)
        step = columns if count == rows * columns else (count - columns) // (rows - 1)
        return torch.unflatten(block.as_strided((rows, columns), (step, 1)), 0, shape[:-1])


def _uniform(count: int, seed: bytes, bound: float) -> npt.NDArray[np.float32]:
    """`count` numbers, evenly from -bound to bound, in steps of 2^-23 of it.

    From the generator's raw bits: numpy keeps those for good (NEP 19), and neither its distributions nor torch's.
    """
    bits = np.random.PCG64(int.from_bytes(seed[:16], "little")).random_raw((count + 1) // 2)
    values: npt.NDArray[np.float32] = (bits.astype("<u8").view("<u4")[:count] >> 8).astype(np.float32)
    values *= bound / 2**23
    values -= bound
    return values
