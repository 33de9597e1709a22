"""The short causal convolution in front of every recurrence: each channel mixes its last K inputs (K is 4).

One step of it needs the K-1 inputs before: that is the conv state, a few columns a channel, whatever the context.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine.model.reader import Reader


@dataclass(frozen=True, slots=True)
class ShortConv:
    """y_t = silu(sum_j w_j u_{t-K+1+j} + b), channel by channel. `taps` is [K, C]: one row for each distance."""

    taps: Tensor
    bias: Tensor | None = None

    @classmethod
    def read(cls, reader: Reader, *names: str, bias: bool = False) -> ShortConv:
        """Take the convolutions called `names`, their channels in this order; checkpoints store them [C, 1, K]."""
        taps = torch.cat([reader.vector(f"{name}.weight") for name in names]).squeeze(1)
        return cls(taps.t().contiguous(), reader.vector(f"{names[0]}.bias") if bias else None)

    def __call__(self, inputs: Tensor, state: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, C], behind the K-1 inputs in `state` [B, K-1, C], which becomes the last K-1 seen."""
        tokens, kept = inputs.shape[1], state.shape[1]
        seen = torch.cat((state, inputs), dim=1)
        state.copy_(seen[:, tokens:])
        mixed = seen[:, :tokens] * self.taps[0]
        for distance in range(1, kept + 1):
            mixed.addcmul_(seen[:, distance : distance + tokens], self.taps[distance])
        if self.bias is not None:
            mixed.add_(self.bias)
        return F.silu(mixed, inplace=True)

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [self.taps] if self.bias is None else [self.taps, self.bias]
