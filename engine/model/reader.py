"""From named checkpoint tensors to the tensors the model keeps: fused, in its own dtype, on its own device.

Each is copied into memory of its own, one at a time: what is resident is exactly what the layers hold,
the mapping may be lazy or a memory-mapped file, and loading needs one tensor more than the model itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.errors import LabError
from engine.model.linear import Linear


@dataclass(frozen=True, slots=True)
class Reader:
    """Takes tensors out of a mapping, under a common prefix of names."""

    tensors: Mapping[str, Tensor]
    dtype: torch.dtype
    device: torch.device
    prefix: str = ""

    def under(self, prefix: str) -> Reader:
        """The same tensors, seen from one level further down."""
        return replace(self, prefix=self.prefix + prefix)

    def vector(self, name: str) -> Tensor:
        """One tensor as the model keeps it."""
        return self._stack([name])

    def linear(self, *names: str, bias: bool) -> Linear:
        """The linears called `names` as one, their outputs in this order: one read, one call."""
        weight = self._stack([f"{name}.weight" for name in names])
        return Linear(weight, self._stack([f"{name}.bias" for name in names]) if bias else None)

    def _stack(self, names: Sequence[str]) -> Tensor:
        shapes = [self._take(name).shape for name in names]
        stacked = torch.empty(sum(s[0] for s in shapes), *shapes[0][1:], dtype=self.dtype, device=self.device)
        row = 0
        for name, shape in zip(names, shapes, strict=True):
            stacked[row : row + shape[0]].copy_(self._take(name))
            row += shape[0]
        return stacked

    def _take(self, name: str) -> Tensor:
        try:
            return self.tensors[self.prefix + name]
        except KeyError:
            raise LabError("The checkpoint has no tensor {name}.", name=self.prefix + name) from None
