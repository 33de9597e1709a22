"""A matrix in fewer bytes: int8 with a scale per row, int4 with a scale per group of weights.

Weight-only: what a product multiplies is the weight, scale included, in fp32, or by activations of 16 bits, which costs
256 times less than int8 weights do (`engine.kernels.whole`). Scales are bf16, two bytes each, and the weights are
rounded against the rounded scale, so that nothing is lost twice. What each format takes in bytes is in
`engine.ledger.formats`, and the two are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine.arena import Arena

GROUPS = {"int8": 0, "int4": 128, "int4-g32": 32, "int4-g64": 64}
"""The formats by their names, and the weights that share a scale; 0 for a whole row."""

_TILE = 32
"""int4 weights lie in runs of so many: the low halves of 16 bytes, then the high halves."""


@dataclass(frozen=True, slots=True)
class Packed:
    """[n, k] weights.

    stored: int8 [n, k], or two int4 a byte, uint8 [n, k/2] with k filled up to whole groups.
    scales: bf16 [n], or [n, groups].
    group: weights that share a scale; 0 for a whole row, and then it is int8.
    """

    stored: Tensor
    scales: Tensor
    group: int
    shape: tuple[int, int]

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [self.stored, self.scales]

    def dequantise(self) -> Tensor:
        """The weights it stands for, fp32 [n, k]: what a product with many rows is computed from."""
        return self._weights(self.stored, self.scales)

    def rows(self, ids: Tensor) -> Tensor:
        """Some of the rows, fp32 [len(ids), k]: an embedding's look-up."""
        return self._weights(self.stored[ids], self.scales[ids])

    def _weights(self, stored: Tensor, scales: Tensor) -> Tensor:
        if not self.group:
            return stored.float().mul_(scales.float()[:, None])
        runs = stored.view(len(stored), -1, _TILE // 2)
        nibbles = torch.cat((runs & 15, runs >> 4), dim=-1).float().sub_(8.0)
        scaled = nibbles.view(len(stored), -1, self.group).mul_(scales.float()[:, :, None])
        return scaled.view(len(stored), -1)[:, : self.shape[1]]


def pack(weight: Tensor, format_: str, arena: Arena) -> Packed:
    """Quantise an fp32 matrix [n, k] to one of `GROUPS`.

    int8: the largest weight of a row becomes 127. int4: the largest of a group becomes -8, so that all sixteen values
    are used (as ggml's Q4_0).
    """
    group = GROUPS[format_]
    n, k = weight.shape
    if not group:
        numbers, scales = to_int8(weight)
        return Packed(_kept(numbers, arena), _kept(scales, arena), 0, (n, k))
    groups = F.pad(weight, (0, -k % group)).view(n, -1, group)
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))[:, :, 0]
    scales = (largest / -8).bfloat16()
    whole = (groups / scales.float()[:, :, None]).round_().clamp_(-8, 7).nan_to_num_(0.0)
    runs = (whole + 8).to(torch.uint8).view(n, -1, 2, _TILE // 2)
    stored = (runs[:, :, 0] | (runs[:, :, 1] << 4)).view(n, -1)
    return Packed(_kept(stored, arena), _kept(scales, arena), group, (n, k))


def to_int8(rows: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 [..., k] as int8, and a bf16 scale for each row, [...]: the largest number of a row becomes 127."""
    scales = _rounded_up(rows.abs().amax(-1) / 127)
    whole = (rows / scales.float()[..., None]).round_().clamp_(-127, 127).nan_to_num_(0.0)
    return whole.to(torch.int8), scales


def pack_in_blocks(blocks: Iterable[Tensor], size: tuple[int, int], format_: str, arena: Arena) -> Packed:
    """As `pack`, from blocks of rows: fp32 [m, k] each, in their order, [n, k] in all."""
    whole: Packed | None = None
    first = 0
    for block in blocks:
        part = pack(block, format_, Arena())
        if whole is None:
            empty = [arena.empty((size[0], *t.shape[1:]), t.dtype, t.device) for t in part.tensors]
            whole = Packed(empty[0], empty[1], part.group, size)
        for target, tensor in zip(whole.tensors, part.tensors, strict=True):
            target[first : first + len(block)].copy_(tensor)
        first += len(block)
    assert whole is not None
    return whole


def _rounded_up(scales: Tensor) -> Tensor:
    """Non-negative fp32 to the next bf16 that is not smaller: the largest weight must not be cut off."""
    near = scales.bfloat16()
    return torch.where(near.float() < scales, (near.view(torch.int16) + 1).view(torch.bfloat16), near)


def _kept(tensor: Tensor, arena: Arena) -> Tensor:
    return arena.empty(tuple(tensor.shape), tensor.dtype, tensor.device).copy_(tensor)
