"""One matrix of the model: the only place where a weight meets its input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine.model.few_rows import FewRows, few_rows
from engine.model.packed import Packed


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x W^T + b with W stored [out, in], as checkpoints store it: each output's weights lie together.

    W may be held in fewer bytes than the input's; for many rows it is then spelled out, as a prompt is worth. A few
    rows have a kernel that reads it as it is (`few`), taken where it was found to be the faster way.
    """

    weight: Tensor
    bias: Tensor | None = None
    packed: Packed | None = None
    few: FewRows | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, matrix: Tensor | Packed, bias: Tensor | None = None) -> Linear:
        """A matrix in any format; `weight` of a packed one is what it stores."""
        few = few_rows(matrix, bias)
        return cls(matrix.stored, bias, matrix, few) if isinstance(matrix, Packed) else cls(matrix, bias, None, few)

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        if self.few is not None and self.few.takes(x):
            return self.few(x)
        return self.by_torch(x)

    def by_torch(self, x: Tensor) -> Tensor:
        """The same by the libraries' product, however few the rows are."""
        weight = self.weight if self.packed is None else self.packed.dequantise()
        return F.linear(x, weight.to(x.dtype), self.bias)

    @property
    def shape(self) -> tuple[int, int]:
        """Outputs and inputs."""
        n, k = self.weight.shape if self.packed is None else self.packed.shape
        return n, k

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        weight = [self.weight] if self.packed is None else self.packed.tensors
        return weight if self.bias is None else [*weight, self.bias]


def linears_in(part: Any) -> Iterator[Linear]:
    """Every linear of a part of a model, whatever the part is made of: layers, mixers, lists of experts."""
    if isinstance(part, Linear):
        yield part
    elif isinstance(part, list | tuple):
        for each in part:
            yield from linears_in(each)
    elif is_dataclass(part) and not isinstance(part, type):
        for each_field in fields(part):
            yield from linears_in(getattr(part, each_field.name))


def most_rows_of(linears: Sequence[Linear], dtype: torch.dtype) -> dict[str, str]:
    """Up to how many rows the kernel takes these products: {"few_rows": "8"}, or "4-16" by matrix; {} without any."""
    choices = [linear.few.choice(dtype) for linear in linears if linear.few is not None]
    most = sorted({choice.most_rows for choice in choices if choice is not None})
    return {"few_rows": "-".join(str(rows) for rows in dict.fromkeys([most[0], most[-1]]))} if most else {}
