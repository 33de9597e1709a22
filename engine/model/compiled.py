"""A decoder's steps through the compiled kernels: its tensors' addresses in tables, and memory to work in.

Taken for every decode step, and for prompts so short that reading the weights costs more than computing with them.
Imports numba, so it is imported only where that is there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from engine import spec as specs
from engine.cache import AnyKVCache
from engine.kernels.attend import room_bytes as attention_bytes
from engine.kernels.entry import step_address
from engine.kernels.layout import LAYER, STEP, marks_of
from engine.kernels.team import meeting_place, team
from engine.kernels.tiles import STEP as TILE
from engine.kernels.whole import room_bytes
from engine.model.few_rows import choice_of, kind_of
from engine.model.linear import Linear
from engine.model.packed import Packed
from engine.model.rotary import RotaryTable

if TYPE_CHECKING:
    from engine.model.decoder import Layer

UNMEASURED_ROWS = 32
"""Rows of a step beyond which the libraries' matrix products are taken as long as nobody has measured
(`engine.model.choosing_steps`): each weight is then used often enough."""
UNMEASURED_PACKED_ROWS = 64
"""The same for weights that the libraries' products need spelled out in fp32 first."""
SPLIT_FROM = 128
"""Cached positions from which one sequence's context is shared out: below, the sharing costs as much as it saves."""


@dataclass(frozen=True, slots=True)
class Outer:
    """What stands outside the layers."""

    embedding: Tensor | Packed
    norm: Tensor
    head: Linear


class CompiledSteps:
    """Runs steps of one decoder. Its buffers grow to the largest step so far; a step allocates only its logits."""

    def __init__(self, spec: specs.Spec, layers: list[Layer], outer: Outer, kv: str = "fp32") -> None:
        mixer, feed = spec.layers[0].mixer, spec.layers[0].feed_forward
        assert isinstance(mixer, specs.Attention)
        assert isinstance(feed, specs.Mlp)
        self.spec, self.layers, self.outer = spec, layers, outer  # the tables hold no more than addresses
        kind = kind_of(outer.embedding)
        assert kind is not None
        self._kind, self._int8 = kind, kind == "int8"
        self.hold_kv(kv)
        self._layers = np.array([_layer_row(layer) for layer in layers], LAYER)
        self._step = np.zeros(1, STEP)
        # One for each number of threads: it only grows, for a thread may still look at it when the next step begins.
        self._counters: dict[int, Any] = {}
        self.marks = np.zeros((marks_of(len(layers)), 2), np.int64)
        group = outer.embedding.group if isinstance(outer.embedding, Packed) and outer.embedding.group else TILE
        inner = mixer.heads * mixer.head_dim
        shape = f"{spec.hidden_size} {mixer.heads}/{mixer.kv_heads}x{mixer.head_dim} {feed.width}"
        self.choice = choice_of(
            f"whole steps {kind}-{group} {shape}", UNMEASURED_ROWS if kind == "fp32" else UNMEASURED_PACKED_ROWS
        )
        self._set(
            layers=len(layers),
            hidden=spec.hidden_size,
            heads=mixer.heads,
            kv_heads=mixer.kv_heads,
            head_dim=mixer.head_dim,
            width=feed.width,
            vocab=spec.vocab_size,
            group=group,
            hidden_k=_filled(spec.hidden_size, group),
            inner_k=_filled(inner, group),
            width_k=_filled(feed.width, group),
            p_layers=self._layers.ctypes.data,
            p_norm=outer.norm.data_ptr(),
            p_marks=self.marks.ctypes.data,
            clock=time.CLOCK_MONOTONIC,
        )
        self._step["eps"], self._step["scale"] = spec.norm.eps, mixer.head_dim**-0.5
        self._set(**_named("embedding", Linear.of(outer.embedding)), **_named("head", outer.head))
        self._buffers: list[Tensor] = []
        self._sized: tuple[int, ...] = ()

    def hold_kv(self, format_: str) -> None:
        """Whose caches the steps from now on read and write: "fp32", "bf16" or "int8"."""
        self.kv = format_
        self._function = step_address(self._kind, format_)

    def __call__(self, ids: Tensor, cache: AnyKVCache, rotary: RotaryTable, *, every: bool = False) -> Tensor:
        """Logits of the last of the new tokens, [B, T] -> [B, V]; their keys and values go to the cache.

        every: of all new tokens, [B, T, V].
        """
        batch, tokens = ids.shape
        threads = torch.get_num_threads()
        self._prepare(threads, batch, tokens, cache.positions)
        start = cache.take(tokens)
        pairs = batch * int(self._step["kv_heads"][0])
        shared = tokens == 1 and start >= SPLIT_FROM and pairs % threads
        shape = (batch, tokens) if every else (batch,)
        logits = torch.empty(*shape, int(self._step["vocab"][0]))
        ids = ids.contiguous()
        cos, signed_sin = rotary.tables
        self._set(
            rows=batch * tokens,
            batch=batch,
            tokens=tokens,
            every=every,
            start=start,
            splits=threads if shared else 1,
            p_ids=ids.data_ptr(),
            p_logits=logits.data_ptr(),
            p_cache=cache.storage.data_ptr(),
            p_cache_scales=0 if cache.scales is None else cache.scales.data_ptr(),
            p_cos=cos.data_ptr(),
            p_signed_sin=signed_sin.data_ptr(),
        )
        team(threads)(self._function, self._step.ctypes.data)
        return logits

    def laps_ns(self) -> list[int]:
        """What the last step took: the embedding, five shares a layer (see `engine.kernels.step`), the head."""
        moments = self.marks[:, 0] * 10**9 + self.marks[:, 1]
        return [int(lap) for lap in np.diff(moments)]

    def _set(self, **fields: int) -> None:
        for name, value in fields.items():
            self._step[name] = value

    def _prepare(self, threads: int, batch: int, tokens: int, capacity: int) -> None:
        """Buffers for a step of this size. Those of a quantised format are filled up with zeros to whole groups."""
        rows = max(batch * tokens, self._sized[1] if self._sized else 0)
        if self._sized == (threads, rows, capacity):
            return
        step = {name: int(self._step[name][0]) for name in STEP.names or ()}
        inner, kv = step["heads"] * step["head_dim"], step["kv_heads"] * step["head_dim"]
        normed, mixed = 4 * step["hidden_k"], 4 * step["inner_k"]
        room = room_bytes(rows, max(step["hidden_k"], step["inner_k"], step["width_k"]), int8=self._int8)
        attention = attention_bytes(step["heads"] // step["kv_heads"], step["head_dim"])
        parts = [rows * normed, rows * mixed, attention, room]
        places = np.cumsum([-(-size // 64) * 64 for size in parts])
        sizes = {
            "p_x": rows * 4 * step["hidden"],
            "p_qkv": rows * 4 * (inner + 2 * kv),
            "p_mixed": rows * mixed,
            "p_gated": rows * 4 * step["width_k"],
            "p_partial": rows * threads * step["heads"] * 4 * (step["head_dim"] + 2),
            "p_private": threads * int(places[-1]),
        }
        self._buffers = [torch.zeros(size, dtype=torch.uint8) for size in sizes.values()]
        self._set(**{name: buffer.data_ptr() for name, buffer in zip(sizes, self._buffers, strict=True)})
        counter = self._counters.setdefault(threads, meeting_place(threads))
        self._set(
            threads=threads,
            p_counter=counter.ctypes.data,
            capacity=capacity,
            x_stride=4 * step["hidden"],
            qkv_stride=4 * (inner + 2 * kv),
            mixed_stride=mixed,
            gated_stride=4 * step["width_k"],
            private_bytes=int(places[-1]),
            normed_stride=normed,
            merged_at=int(places[0]),
            attention_at=int(places[1]),
            sums_at=int(places[2]),
        )
        self._sized = (threads, rows, capacity)


def _named(name: str, linear: Linear) -> dict[str, int]:
    """Addresses of a linear's weights, scales and bias."""
    scales, bias = None if linear.packed is None else linear.packed.scales, linear.bias
    return {
        f"p_{name}": linear.weight.data_ptr(),
        f"p_{name}_scale": 0 if scales is None else scales.data_ptr(),
        f"p_{name}_bias": 0 if bias is None else bias.data_ptr(),
    }


def _layer_row(layer: Layer) -> tuple[int, ...]:
    part = layer.attention
    norms = {
        "input_norm": layer.input_norm,
        "post_norm": layer.post_attention_norm,
        "q_norm": part.q_norm,
        "k_norm": part.k_norm,
    }
    found = {f"p_{name}": 0 if norm is None else norm.data_ptr() for name, norm in norms.items()}
    linears = {"qkv": part.qkv, "out": part.out, "gate_up": layer.mlp.gate_up, "down": layer.mlp.down}
    for name, linear in linears.items():
        found |= _named(name, linear)
    return tuple(found[name] for name in LAYER.names or ())


def _filled(size: int, group: int) -> int:
    return -(-size // group) * group
