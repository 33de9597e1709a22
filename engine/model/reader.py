"""From named checkpoint tensors to the tensors the model keeps: fused, in its own dtype, on its own device.

Each is copied into memory of its own, one at a time: what is resident is exactly what the layers hold,
the mapping may be lazy or a memory-mapped file, and loading needs one tensor more than the model itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from engine.arena import Arena
from engine.errors import LabError
from engine.model.linear import Linear
from engine.model.names import Canonical
from engine.model.packed import GROUPS, Packed, pack_in_blocks

PLAIN = {"fp32": torch.float32, "bf16": torch.bfloat16}


BLOCK_SIZE = 1 << 16
"""Weights packed at once."""


@runtime_checkable
class Sliced(Protocol):
    """A mapping of tensors that can give some rows of one without the others."""

    def __contains__(self, name: object, /) -> bool: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Of the whole tensor."""

    def rows(self, name: str, first: int, end: int) -> Tensor:
        """Rows first .. end-1, as far as there are any."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Takes tensors out of a mapping, under a common prefix of names.

    dtype: of everything that is not a matrix. format_: of matrices ("bf16", "int8" ...); None for the same dtype.
    """

    tensors: Mapping[str, Tensor]
    dtype: torch.dtype
    device: torch.device
    prefix: str = ""
    format_: str | None = None
    arena: Arena = field(default_factory=Arena)

    def under(self, prefix: str) -> Reader:
        """The same tensors, seen from one level further down."""
        return replace(self, prefix=self.prefix + prefix)

    def vector(self, name: str) -> Tensor:
        """One tensor as the model keeps it."""
        return self._stack([name])

    def linear(self, *names: str, bias: bool) -> Linear:
        """The linears called `names` as one, their outputs in this order: one read, one call."""
        weight = self.matrix(*[f"{name}.weight" for name in names])
        return Linear.of(weight, self._stack([f"{name}.bias" for name in names]) if bias else None)

    def matrix(self, *names: str) -> Tensor | Packed:
        """Matrices as one, their rows in this order, in the format of matrices."""
        if self.format_ in GROUPS:
            shapes = [self._shape(name) for name in names]
            size = sum(rows for rows, _ in shapes), shapes[0][1]
            return pack_in_blocks(self._blocks(names), size, self.format_, self.arena)
        return self._stack(names, PLAIN[self.format_] if self.format_ else None)

    def _blocks(self, names: Sequence[str]) -> Iterator[Tensor]:
        """The rows of matrices, one below another, a few at a time and in fp32: what packing takes beside the result
        is then a block's, and not a matrix's.
        """
        for name in names:
            rows, columns = self._shape(name)
            height = max(1, BLOCK_SIZE // columns)
            for first in range(0, rows, height):
                if isinstance(self.tensors, Sliced):
                    yield self.tensors.rows(self.prefix + name, first, first + height).float()
                else:
                    yield self._take(name)[first : first + height].float()

    def _stack(self, names: Sequence[str], dtype: torch.dtype | None = None) -> Tensor:
        shapes = [self._shape(name) for name in names]
        shape = (sum(s[0] for s in shapes), *shapes[0][1:])
        stacked = self.arena.empty(shape, dtype or self.dtype, self.device)
        row = 0
        for name, shape in zip(names, shapes, strict=True):
            self._fill(stacked[row : row + shape[0]], name)
            row += shape[0]
        return stacked

    def _shape(self, name: str) -> tuple[int, ...]:
        full = self.prefix + name
        if isinstance(self.tensors, Canonical | Sliced) and full in self.tensors:
            return self.tensors.shape(full)
        return tuple(self._take(name).shape)

    def _fill(self, target: Tensor, name: str) -> None:
        """Copy a tensor to its place; experts that are stored one by one, one by one."""
        full = self.prefix + name
        if not (isinstance(self.tensors, Canonical) and self.tensors.is_stack(full)):
            target.copy_(self._take(name))
            return
        rows, first = target.flatten(0, 1), 0
        for piece in self.tensors.pieces(full):
            rows[first : first + len(piece)].copy_(piece)
            first += len(piece)

    def _take(self, name: str) -> Tensor:
        try:
            return self.tensors[self.prefix + name]
        except KeyError:
            raise LabError("The checkpoint has no tensor {name}.", name=self.prefix + name) from None
