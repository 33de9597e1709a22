"""One matrix times a few rows by the compiled kernel, wherever that was found to be the faster way.

Which way is faster is settled for a kind of product (`Choice`), before any step is made: see `engine.model.choosing`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine import kernels
from engine.model.packed import Packed

if TYPE_CHECKING:
    from engine.kernels.single import SingleProduct

TRIED_ROWS = (1, 2, 4, 8, 16, 32, 64)
"""Rows that both ways are measured with. A number between two goes the way of the larger; beyond the last: torch's."""
UNMEASURED_ROWS = 8
"""Rows that the kernel takes of a product that nobody has measured."""
SLICE_SIZE = 1 << 22
"""Weights that are tried at a time: enough that starting is little of it, few enough to be quick. Matrices that have a
slice of the same shape share a choice, whatever their outputs."""
PACKED_SLICE_SIZE = 1 << 20
"""The same for packed weights, which torch's way spells out: what that takes comes on top of a model being loaded."""
_UNIT = 16  # outputs that slices are rounded to

_STORED = {torch.float32: "fp32", torch.bfloat16: "bf16"}


def kind_of(matrix: Tensor | Packed) -> str | None:
    """What the kernels call a matrix's format; None for one that they have no name for."""
    if isinstance(matrix, Packed):
        return "int4" if matrix.group else "int8"
    return _STORED.get(matrix.dtype)


class Choice:
    """Up to how many rows the kernel is the faster way, for one kind of product or of step.

    unmeasured: rows that it takes as long as nobody has measured.
    """

    def __init__(self, key: str, unmeasured: int) -> None:
        self.key = key
        self.decided = False
        self._takes = _by_rows({rows for rows in TRIED_ROWS if rows <= unmeasured})

    def decide(self, won: Collection[int]) -> None:
        """The kernel was the faster way with these of `TRIED_ROWS`."""
        self._takes, self.decided = _by_rows(won), True

    def takes(self, rows: int) -> bool:
        """Whether so many rows are the kernel's."""
        return rows < len(self._takes) and self._takes[rows]

    @property
    def most_rows(self) -> int:
        """The most rows that the kernel takes; 0 where it takes none."""
        return max((rows for rows in TRIED_ROWS if self._takes[rows]), default=0)


def _by_rows(won: Collection[int]) -> list[bool]:
    """For every number of rows from 0 on, whether the smallest number tried that is not below it is among `won`."""
    found = [False]
    for rows in TRIED_ROWS:
        found += [rows in won] * (rows + 1 - len(found))
    return found


@cache
def choice_of(key: str, unmeasured: int = UNMEASURED_ROWS) -> Choice:
    """This process's choice for what is called so."""
    return Choice(key, unmeasured)


def forget_choices() -> None:
    """Matrices read from now on go by choices of their own, not yet decided."""
    choice_of.cache_clear()


class FewRows:
    """The compiled product of one matrix, and which calls are its."""

    __slots__ = ("_choices", "product")

    def __init__(self, product: SingleProduct, choices: dict[torch.dtype, Choice]) -> None:
        self.product = product
        self._choices = choices

    def takes(self, x: Tensor) -> bool:
        """Whether the kernel multiplies these rows [..., k]."""
        choice = self._choices.get(x.dtype)
        return choice is not None and x.numel() > 0 and choice.takes(x.numel() // self.product.width)

    def __call__(self, x: Tensor) -> Tensor:
        """[..., k] -> [..., n], in x's dtype."""
        if x.ndim == 2:
            return self.product(x)
        return self.product(x.reshape(-1, x.shape[-1])).view(*x.shape[:-1], -1)

    def choice(self, dtype: torch.dtype) -> Choice | None:
        """What decides for activations of a dtype; None for one that the kernel does not take."""
        return self._choices.get(dtype)


def takes_all(few: FewRows | None, counts: Sequence[int], dtype: torch.dtype) -> bool:
    """Whether the kernel multiplies rows of a dtype by matrices like this one, so many at a time."""
    choice = None if few is None else few.choice(dtype)
    return choice is not None and all(choice.takes(count) for count in set(counts))


def side_by_side(each: Sequence[FewRows | None], counts: Sequence[int], x: Tensor) -> Tensor:
    """Matrices of one shape, each times so many of x's rows [rows, k]: [rows, n] by one call, where it `takes_all`."""
    # Not at the top: it needs numba, which may be missing.
    from engine.kernels.single import products

    return products([few.product for few in each if few is not None], counts, x)


def few_rows(matrix: Tensor | Packed, bias: Tensor | None) -> FewRows | None:
    """The compiled product of a matrix; None where there is none: on other devices, without numba, on request."""
    stored, kind = matrix.stored if isinstance(matrix, Packed) else matrix, kind_of(matrix)
    if kind is None or stored.device.type != "cpu" or not stored.is_contiguous() or not kernels.usable():
        return None
    # Not at the top: they need numba, which may be missing.
    from engine.kernels.single import SingleProduct
    from engine.kernels.tiles import STEP

    n, width = matrix.shape
    if not isinstance(matrix, Packed):
        product = SingleProduct(kind, matrix, None, bias, k=width, n=n, group=STEP)
    else:
        stored_k = matrix.scales.shape[1] * matrix.group if matrix.group else width
        product = SingleProduct(
            kind, matrix.stored, matrix.scales, bias, k=stored_k, n=n, group=matrix.group or STEP, width=width
        )
    slice_rows = slice_of(n, width, packed=isinstance(matrix, Packed))
    dtypes = [torch.float32, torch.bfloat16] if kind == "bf16" else [torch.float32]
    weights = f"{kind}-{matrix.group}" if isinstance(matrix, Packed) and matrix.group else kind
    choices = {
        dtype: choice_of(f"{weights} {_STORED[dtype]} {slice_rows}x{width}")
        for dtype in dtypes
        if bias is None or bias.dtype == dtype
    }
    return FewRows(product, choices)


def slice_of(n: int, k: int, *, packed: bool) -> int:
    """Of the n outputs of a matrix, those that are tried at once."""
    size = PACKED_SLICE_SIZE if packed else SLICE_SIZE
    return min(n, max(_UNIT, size // k // _UNIT * _UNIT))
