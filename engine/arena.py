"""Memory for weights and caches in large blocks of huge pages, where the system gives them.

Reading half a gigabyte once a step passes 130,000 pages of 4 KB; every few of them the processor has to look up where
the next one lies, in a virtual machine through two tables. With pages of 2 MB a matrix-vector product here read 20 GB/s
instead of 15. Matrices are often smaller than such a page, so they share blocks.
"""

from __future__ import annotations

import ctypes
import math
import mmap

import torch
from torch import Tensor

BLOCK_BYTES = 1 << 26
_ALIGN = 64
_HUGE_PAGE = 1 << 21


class Arena:
    """Hands out tensors, one behind the other, for as long as any of them lives. Untouched memory costs nothing."""

    def __init__(self) -> None:
        self._block = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A tensor with memory of its own, uninitialised; on other devices than the CPU, as torch makes it."""
        size = math.prod(shape) * dtype.itemsize
        if device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE"):
            return torch.empty(shape, dtype=dtype, device=device)
        if self._used + size > len(self._block):
            self._block, self._used = _huge(max(size, BLOCK_BYTES)), 0
        part = self._block[self._used : self._used + size]
        self._used += -(-size // _ALIGN) * _ALIGN
        return part.view(dtype).view(shape)


def zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of zeros with memory of its own, every page of it touched; of huge pages where it fills some."""
    size = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or size < 2 * _HUGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(shape, dtype=dtype, device=device)
    return _huge(size).view(dtype).view(shape).zero_()


def _huge(size: int) -> Tensor:
    """`size` bytes from the start of a huge page on. Advice that the system does not take changes nothing."""
    memory = torch.empty(size + _HUGE_PAGE, dtype=torch.uint8)
    first = -memory.data_ptr() % _HUGE_PAGE
    madvise = ctypes.CDLL(None).madvise
    madvise(ctypes.c_void_p(memory.data_ptr() + first), ctypes.c_size_t(size), mmap.MADV_HUGEPAGE)
    return memory[first : first + size]
