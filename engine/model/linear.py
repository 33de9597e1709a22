"""One matrix of the model: the only place where a weight meets its input."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Linear:
    """y = x W^T + b with W stored [out, in], as checkpoints store it: each output's weights lie together."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, in] -> [rows, out]."""
        return F.linear(x, self.weight, self.bias)

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]
