"""One decode step as a CUDA graph: its kernels are recorded once and started together ever after.

Eager, a step of a small model is hundreds of launches of a few microseconds, and the device waits for them. A graph
is one launch, but everything in it has to be the same each time: shapes, addresses, and what Python decided. So the
step is written with the position as a number on the device: keys and values are put in their place by index, and
attention reads every place of the cache, those not yet filled masked out. (That reads more than `ledger.decode` counts:
all positions the cache was made for, and not those filled.)

Capture follows "CUDA Graphs" in PyTorch's notes on CUDA semantics: a few runs on a side stream first, so that what is
set up once (library handles, workspaces) is not recorded; then the recording, which runs nothing. What is recorded may
first be rewritten by torch.compile, which makes fewer kernels of the ops between the linears.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from importlib.util import find_spec
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine.model import ops
from engine.model.attention import Attention, Step

if TYPE_CHECKING:
    from engine.model.decoder import Decoder

_RUNS_BEFORE_CAPTURE = 3


class StaticStep:
    """A dense decoder's decode step in which nothing changes but numbers on the device. Runs anywhere, eagerly too.

    ids: [B], the tokens to add. position: [1], where they go.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._kv = decoder.cache.storage
        device, batch = decoder.device, decoder.cache.batch
        self.ids = torch.zeros(batch, dtype=torch.long, device=device)
        self.position = torch.full((1,), decoder.cache.length, dtype=torch.long, device=device)
        self._places = torch.arange(decoder.cache.positions, device=device)

    def __call__(self) -> Tensor:
        """Logits of the new position, [B, V], fp32."""
        decoder, eps = self._decoder, self._decoder.spec.norm.eps
        cos, signed_sin = (table.index_select(0, self.position) for table in decoder._rotary.tables)
        step = Step(len(self.ids), 1, cos, signed_sin)
        seen = (self._places <= self.position)[None]
        x = ops.embed(self.ids, decoder._embedding)
        for layer, kv in zip(decoder._layers, self._kv.unbind(0), strict=True):
            attended = self._attend(layer.attention, ops.rms_norm(x, layer.input_norm, eps), step, kv, seen)
            x = ops.add_residual_(x, attended)
            x = ops.add_residual_(x, layer.mlp(ops.rms_norm(x, layer.post_attention_norm, eps)))
        return decoder._logits(x)

    def _attend(self, part: Attention, x: Tensor, step: Step, kv: Tensor, seen: Tensor) -> Tensor:
        """[B, h] -> [B, h], over all places of `kv` [2, B, Hkv, positions, d] that are `seen` [1, positions]."""
        queries, keys_values = part.project(x, step)
        new = torch.unflatten(keys_values, 2, (2, part.kv_heads)).permute(2, 0, 3, 1, 4)  # [2, B, Hkv, 1, d]
        kv.index_copy_(3, self.position, new)
        groups = queries.reshape(step.batch, part.kv_heads, -1, part.head_dim)
        return part.out(F.scaled_dot_product_attention(groups, kv[0], kv[1], attn_mask=seen).flatten(1))


class DecodeGraph:
    """A captured step, for one batch and one cache. Its logits are overwritten by the next step.

    compile_ns: what torch.compile took, 0 without it. capture_ns: what the runs before the recording and that took.
    """

    def __init__(self, decoder: Decoder, *, compiled: bool = False) -> None:
        self._cache = decoder.cache
        self._step = StaticStep(decoder)
        self._graph = torch.cuda.CUDAGraph()
        work = fused(self._step) if compiled else self._step
        started = perf_counter_ns()
        with torch.cuda.device(decoder.device):
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                if compiled:
                    work()  # the first call compiles
                compiled_at = perf_counter_ns()
                for _ in range(_RUNS_BEFORE_CAPTURE):
                    work()  # writes the new position's place, which the first replay writes again
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(self._graph):
                self._logits = work()
        self.compile_ns = compiled_at - started if compiled else 0
        self.capture_ns = perf_counter_ns() - compiled_at

    def __call__(self, ids: Tensor) -> Tensor:
        """Add one token to every sequence, ids [B] -> logits [B, V]. Returns before the device is done.

        Raises:
            LabError: the cache is full.
        """
        self._step.position.fill_(self._cache.take(1))
        self._step.ids.copy_(ids)
        self._graph.replay()
        return self._logits


def fused(step: StaticStep) -> Callable[[], Tensor]:
    """The same step rewritten by torch.compile, at its first call. One shape, and nothing of it is left to Python."""
    torch.compiler.reset()  # what it made for another cache counts towards its limit
    made: Callable[[], Tensor] = torch.compile(step.__call__, fullgraph=True, dynamic=False)
    return made


def what_compiling_lacks() -> list[str]:
    """What torch.compile needs on CUDA and this machine has not."""
    compilers = [name for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name]
    there = {"Triton": find_spec("triton") is not None, "a C compiler": any(map(shutil.which, compilers))}
    return [name for name, is_there in there.items() if not is_there]
