"""A matrix of made-up numbers in any format, multiplied as this engine's model would: few rows by the compiled kernel
where it was found to be faster, many by the libraries' product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine import device as devices
from engine.ledger import WEIGHT_LAYOUTS
from engine.matrices import FORMATS, Matrix
from engine.model import choosing
from engine.model.linear import Linear
from engine.model.packed import GROUPS, Packed


class Product:
    """x W^T for one matrix. `rows` is as many made-up rows as were asked for.

    Random, not constant: equal numbers let a processor draw less power and run faster than it does in a model.
    """

    def __init__(self, matrix: Matrix, weights: str, most_rows: int, device: torch.device) -> None:
        self._dtype = devices.DTYPES[FORMATS[weights]]
        self._generator = torch.Generator(device=device).manual_seed(0)
        self._device = device
        held = self._packed(matrix, weights) if weights in GROUPS else self._normal(matrix.n, matrix.k)
        self._linear = Linear.of(held)
        choosing.settle([self._linear], self._dtype)
        self.rows = self._normal(most_rows, matrix.k)

    def __call__(self, rows: int) -> Tensor:
        """The product with the first `rows` rows."""
        return self._linear(self.rows[:rows])

    def _normal(self, *size: int) -> Tensor:
        return torch.empty(*size, dtype=self._dtype, device=self._device).normal_(generator=self._generator)

    def _packed(self, matrix: Matrix, weights: str) -> Packed:
        """Stored numbers and scales drawn at once: spelled out first, a large matrix would need four times the room."""
        group, n, width = GROUPS[weights], matrix.n, _stored_width(matrix, weights)

        def whole(low: int, high: int, *size: int, dtype: torch.dtype) -> Tensor:
            return torch.empty(*size, dtype=dtype, device=self._device).random_(low, high, generator=self._generator)

        if not group:
            stored = whole(-127, 128, n, matrix.k, dtype=torch.int8)
            scales = torch.full((n,), 1e-3, dtype=torch.bfloat16, device=self._device)
        else:
            stored = whole(0, 256, n, width // 2, dtype=torch.uint8)
            scales = torch.full((n, width // group), 1e-3, dtype=torch.bfloat16, device=self._device)
        return Packed(stored, scales, group, (n, matrix.k))


def _stored_width(matrix: Matrix, weights: str) -> int:
    """Numbers in a stored row: int4 fills the last group with zeros."""
    group = GROUPS.get(weights) or WEIGHT_LAYOUTS[weights].block
    return -(-matrix.k // group) * group
