"""The control readings: how fast weights are read where they lie, and how fast a fixed pair of matrices multiplies.

Taken beside the walks a model's points come from and again before a run of it, they say how much slower or faster
the machine has become in between (`engine.present`). Neither knows a step, a token or a kernel of the decoder: what
makes a step slow for reasons of its own is never taken for the machine.

Where weights lie matters: one process's memory is read up to a quarter faster than another's, for as long as both live.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from time import perf_counter_ns

import torch
from torch import Tensor
from torch.nn import functional

from engine.ceilings import ControlRates
from engine.model import Model
from engine.present import chance

BURST_S = 0.2
"""How long one sample takes: the same beside the walks and before a run, for weights read over and over come to lie
nearer with every pass."""
READING_NS = 20_000_000
"""Reading at a time; then it multiplies."""
PIECE_BYTES = 2**24
ROWS, SIZE, PRODUCTS = 64, 1024, 5
"""Rows and sides of the product, half a millisecond of a small CPU, and how often it is made in a sample."""


class Control:
    """Samples of both rates; whoever measures something else asks for one now and then."""

    def __init__(self) -> None:
        self._pieces: list[Tensor] = []
        self._next = 0
        self._rows, self._matrix = torch.full((ROWS, SIZE), 0.01), torch.full((SIZE, SIZE), 0.01)
        self._read: list[float] = []
        self._multiplied: list[float] = []

    def take(self, weights: Iterable[Tensor]) -> None:
        """Whose memory is read from now on."""
        distinct = {tensor.data_ptr(): _words(tensor) for tensor in weights if _is_readable(tensor)}
        filled = [words for words in distinct.values() if len(words)]
        self._pieces = [piece for words in filled for piece in torch.split(words, PIECE_BYTES // 8)]
        self._next = 0

    def sample(self) -> None:
        """Read for a moment, going on where the last one stopped, and multiply, over and over; the medians count."""
        if not self._pieces:
            return
        end_ns, read, multiplied = perf_counter_ns() + BURST_S * 1e9, list[float](), list[float]()
        while not read or perf_counter_ns() < end_ns:
            read.append(self._read_for(READING_NS))
            multiplied.append(self._multiply())
        self._read.append(statistics.median(read))
        self._multiplied.append(statistics.median(multiplied))

    def rates(self) -> ControlRates | None:
        """The medians of all samples, and by how much one differs from the next; None where there is none."""
        if not self._read:
            return None
        return ControlRates(
            read_bytes_per_s=1e9 / statistics.median(self._read),
            multiplied_flops_per_s=1e9 / statistics.median(self._multiplied),
            read_chance=chance(self._read),
            multiplied_chance=chance(self._multiplied),
        )

    def _multiply(self) -> float:
        """Nanoseconds for each FLOP, after a product that does not count."""
        functional.linear(self._rows, self._matrix)
        started = perf_counter_ns()
        for _ in range(PRODUCTS):
            functional.linear(self._rows, self._matrix)
        return (perf_counter_ns() - started) / (PRODUCTS * 2 * ROWS * SIZE * SIZE)

    def _read_for(self, least_ns: int) -> float:
        """Nanoseconds for each byte, over at least that time."""
        started, read_bytes, elapsed_ns = perf_counter_ns(), 0, 0
        while elapsed_ns < least_ns:
            piece = self._pieces[self._next]
            self._next = (self._next + 1) % len(self._pieces)
            piece.sum()
            read_bytes += piece.nbytes
            elapsed_ns = perf_counter_ns() - started
        return elapsed_ns / read_bytes


@torch.inference_mode()
def look(model: Model) -> list[ControlRates]:
    """Both rates now, of a loaded model's weights; none on devices that are nobody else's meanwhile."""
    if model.device.type != "cpu":
        return []
    control = Control()
    control.take(model.weights)
    control.sample()
    rates = control.rates()
    return [rates] if rates else []


def _is_readable(tensor: Tensor) -> bool:
    """Whether its memory is in one piece that begins at a whole word."""
    return tensor.is_contiguous() and tensor.storage_offset() * tensor.itemsize % 8 == 0


def _words(tensor: Tensor) -> Tensor:
    """A tensor's memory as whole numbers of 64 bits, whatever it holds; what fills no whole one is left out.

    As whole numbers: bits of other formats taken for fractions are often such that a processor adds them slowly.
    """
    found = tensor.detach().view(-1).view(torch.uint8)
    return found[: found.numel() // 8 * 8].view(torch.int64)
