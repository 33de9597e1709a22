"""Attention with the options plain decoders do without: an output gate, partial or no rotary positions, a window,
sinks, a scale of its own. Qwen3-Next and 3.5, Gemma 3, gpt-oss, Mistral v0.1, Granite and Nemotron-H mix them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine import spec as specs
from engine.cache import LayerViews
from engine.hybrid_cache import RingViews
from engine.model import ops, window
from engine.model.attention import Step
from engine.model.linear import Linear
from engine.model.reader import Reader


@dataclass(frozen=True, slots=True)
class VariedAttention:
    """q, k, v and, where there is one, the output gate in one matrix, head by head in this order."""

    sizes: specs.Attention
    projection: Linear
    out: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    sinks: Tensor | None
    eps: float
    scale: float

    @classmethod
    def read(cls, spec: specs.Attention, reader: Reader, eps: float, recipe: specs.Recipe) -> VariedAttention:
        """Take one layer's weights, whose names begin with "self_attn."."""
        part = reader.under("self_attn.")
        projection = part.linear("q_proj", "k_proj", "v_proj", bias=spec.qkv_bias)
        shift = 1.0 if recipe.zero_centred else 0.0
        return cls(
            sizes=spec,
            projection=_gates_last(projection, spec) if spec.output_gate else projection,
            out=part.linear("o_proj", bias=spec.o_bias),
            q_norm=part.vector("q_norm.weight").add_(shift) if spec.qk_norm else None,
            k_norm=part.vector("k_norm.weight").add_(shift) if spec.qk_norm else None,
            sinks=part.vector("sinks") if spec.sinks else None,
            eps=eps,
            scale=recipe.attention_scale or spec.head_dim**-0.5,
        )

    def __call__(self, x: Tensor, step: Step, cache: LayerViews | RingViews) -> Tensor:
        """[B*T, h] -> [B*T, h]; this step's keys and values are written to the cache on the way."""
        sizes = self.sizes
        heads = self.projection(x).view(step.batch, step.tokens, -1, sizes.head_dim)
        queries, keys, values, gates = self._split(heads)
        if self.q_norm is not None and self.k_norm is not None:
            queries.copy_(ops.rms_norm(queries, self.q_norm, self.eps))
            keys.copy_(ops.rms_norm(keys, self.k_norm, self.eps))
        if sizes.rotary is not None:
            turning = heads[:, :, : sizes.heads + sizes.kv_heads, : sizes.rotary.dims]
            ops.rotate_heads_(turning, step.cos, step.signed_sin)
        mixed = self._attend(queries, keys, values, step, cache)
        if gates is not None:
            mixed.mul_(gates.flatten(2).flatten(0, 1).sigmoid())
        return self.out(mixed)

    def _split(self, heads: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        q, kv = self.sizes.heads, self.sizes.kv_heads
        gates = heads[:, :, q + 2 * kv :] if self.sizes.output_gate else None
        return heads[:, :, :q], heads[:, :, q : q + kv], heads[:, :, q + kv : q + 2 * kv], gates

    def _attend(
        self, queries: Tensor, keys: Tensor, values: Tensor, step: Step, cache: LayerViews | RingViews
    ) -> Tensor:
        """[B*T, Hq*d]. One token attends to what the cache holds, a prompt to itself and to what was read before."""
        new = torch.stack((keys, values)).transpose(2, 3)  # [2, B, Hkv, T, d]
        if isinstance(cache, RingViews):
            # The ring keeps no order and forgets what the first of many tokens still sees.
            reach = min(cache.start, cache.ring.shape[3] - 1) if step.tokens > 1 else 0
            if reach:
                new = torch.cat((window.last_of_ring(cache.ring, cache.start, reach), new), dim=3)
            ordered = (new[0], new[1])
            filled = window.write_ring_(cache.ring, new[:, :, :, reach:], cache.start)
        else:
            cache.new.copy_(new)
            filled = (cache.keys, cache.values)
            ordered = filled
        if step.tokens == 1:
            return window.attend_one(queries, *filled, scale=self.scale, sinks=self.sinks)
        return window.attend_prompt(queries, *ordered, scale=self.scale, window=self.sizes.window, sinks=self.sinks)

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        vectors = [tensor for tensor in (self.q_norm, self.k_norm, self.sinks) if tensor is not None]
        return [*self.projection.tensors, *self.out.tensors, *vectors]


def _gates_last(projection: Linear, spec: specs.Attention) -> Linear:
    """Rows reordered: checkpoints store, head by head, a query and its gate; here the gates follow the values."""
    rows = torch.arange(projection.weight.shape[0])
    pairs, rest = rows[: spec.q_width].view(spec.heads, 2, spec.head_dim), rows[spec.q_width :]
    order = torch.cat((pairs[:, 0].flatten(), rest, pairs[:, 1].flatten())).to(projection.weight.device)
    return Linear.of(projection.weight[order], None if projection.bias is None else projection.bias[order])
