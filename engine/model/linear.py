"""One matrix of the model: the only place where a weight meets its input."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine.model.packed import Packed


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x W^T + b with W stored [out, in], as checkpoints store it: each output's weights lie together.

    W may be held in fewer bytes than the input's; it is then spelled out for the product, as a prompt's many rows are
    worth. Single rows have kernels that read it as it is (`engine.kernels`).
    """

    weight: Tensor
    bias: Tensor | None = None
    packed: Packed | None = None

    @classmethod
    def of(cls, matrix: Tensor | Packed, bias: Tensor | None = None) -> Linear:
        """A matrix in any format; `weight` of a packed one is what it stores."""
        return cls(matrix.stored, bias, matrix) if isinstance(matrix, Packed) else cls(matrix, bias)

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
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
