"""A matrix of made-up numbers in any format, multiplied as this engine's model would: few rows by the compiled kernel
where there is one for the format, many by the libraries' product.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine import device as devices
from engine import kernels
from engine.ledger import WEIGHT_LAYOUTS
from engine.matrices import FORMATS, Matrix
from engine.model.linear import Linear
from engine.model.packed import GROUPS, Packed

Call = Callable[[Tensor], Tensor]


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
        self._kernel, self._kernel_rows = _kernel(matrix, weights, held, device)
        width = stored_width(matrix, weights)
        self.rows = self._normal(most_rows, width)
        if width > matrix.k:
            self.rows[:, matrix.k :] = 0
        self._k = matrix.k

    def __call__(self, rows: int) -> Tensor:
        """The product with the first `rows` rows."""
        x = self.rows[:rows]
        if self._kernel is not None and rows <= self._kernel_rows:
            return self._kernel(x)
        return self._linear(x[:, : self._k])

    def _normal(self, *size: int) -> Tensor:
        return torch.empty(*size, dtype=self._dtype, device=self._device).normal_(generator=self._generator)

    def _packed(self, matrix: Matrix, weights: str) -> Packed:
        """Stored numbers and scales drawn at once: spelled out first, a large matrix would need four times the room."""
        group, n, width = GROUPS[weights], matrix.n, stored_width(matrix, weights)

        def whole(low: int, high: int, *size: int, dtype: torch.dtype) -> Tensor:
            return torch.empty(*size, dtype=dtype, device=self._device).random_(low, high, generator=self._generator)

        if not group:
            stored = whole(-127, 128, n, matrix.k, dtype=torch.int8)
            scales = torch.full((n,), 1e-3, dtype=torch.bfloat16, device=self._device)
        else:
            stored = whole(0, 256, n, width // 2, dtype=torch.uint8)
            scales = torch.full((n, width // group), 1e-3, dtype=torch.bfloat16, device=self._device)
        return Packed(stored, scales, group, (n, matrix.k))


def stored_width(matrix: Matrix, weights: str) -> int:
    """Numbers in a stored row: int4 fills the last group with zeros."""
    group = GROUPS.get(weights) or WEIGHT_LAYOUTS[weights].block
    return -(-matrix.k // group) * group


def _kernel(matrix: Matrix, weights: str, held: Tensor | Packed, device: torch.device) -> tuple[Call | None, int]:
    """The compiled kernel and the most rows a model would give it; None where a model would not use it either."""
    if device.type != "cpu" or FORMATS[weights] != "fp32" or not kernels.usable():
        return None, 0
    # Not at the top: they need numba, which may be missing.
    from engine.kernels.single import SingleProduct
    from engine.kernels.tiles import STEP
    from engine.model.compiled import MOST_PACKED_ROWS, MOST_ROWS

    width = stored_width(matrix, weights)
    if width % STEP:
        return None, 0
    if isinstance(held, Packed):
        kind = "int4" if held.group else "int8"
        made = SingleProduct(kind, held.stored, held.scales, k=width, n=matrix.n, group=held.group or STEP)
        return made, MOST_PACKED_ROWS
    return SingleProduct("fp32", held, None, k=width, n=matrix.n, group=STEP), MOST_ROWS
