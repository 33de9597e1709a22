"""Grouped-query attention with rotary positions: one layer's mixer, for a prompt and for a single token."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine import spec as specs
from engine.cache import LayerViews, RoundedViews
from engine.model import ops
from engine.model.linear import Linear
from engine.model.reader import Reader


@dataclass(frozen=True, slots=True)
class Step:
    """What all layers of one step share: B sequences, T new tokens each, the angles of their positions."""

    batch: int
    tokens: int
    cos: Tensor
    signed_sin: Tensor


@dataclass(frozen=True, slots=True)
class Attention:
    """MHA, GQA and MQA alike. q, k and v are one matrix, in this order; q and k heads are normed where Qwen3 asks."""

    heads: int
    kv_heads: int
    head_dim: int
    qkv: Linear
    out: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    eps: float

    @classmethod
    def read(cls, spec: specs.Attention, reader: Reader, eps: float) -> Attention:
        """Take one layer's weights, whose names begin with "self_attn."."""
        part = reader.under("self_attn.")
        return cls(
            heads=spec.heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            qkv=part.linear("q_proj", "k_proj", "v_proj", bias=spec.qkv_bias),
            out=part.linear("o_proj", bias=spec.o_bias),
            q_norm=part.vector("q_norm.weight") if spec.qk_norm else None,
            k_norm=part.vector("k_norm.weight") if spec.qk_norm else None,
            eps=eps,
        )

    def __call__(self, x: Tensor, step: Step, cache: LayerViews | RoundedViews) -> Tensor:
        """[B*T, h] -> [B*T, h]; this step's keys and values are written to the cache on the way."""
        queries, keys_values = self.project(x, step)
        ops.write_cache_(cache.new, keys_values)
        attend = ops.decode_attention if step.tokens == 1 else ops.prefill_attention
        return self.out(attend(queries, cache.keys, cache.values))

    def project(self, x: Tensor, step: Step) -> tuple[Tensor, Tensor]:
        """Queries [B, T, Hq, d], and key heads then value heads [B, T, 2*Hkv, d], normed and turned."""
        heads = self.qkv(x).view(step.batch, step.tokens, -1, self.head_dim)
        queries, keys_values = heads[:, :, : self.heads], heads[:, :, self.heads :]
        if self.q_norm is not None and self.k_norm is not None:
            keys = keys_values[:, :, : self.kv_heads]
            queries.copy_(ops.rms_norm(queries, self.q_norm, self.eps))
            keys.copy_(ops.rms_norm(keys, self.k_norm, self.eps))
        # Query and key heads lie next to each other, and so do key and value heads: one call for each pair.
        ops.rotate_heads_(heads[:, :, : self.heads + self.kv_heads], step.cos, step.signed_sin)
        return queries, keys_values

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        norms = [norm for norm in (self.q_norm, self.k_norm) if norm is not None]
        return [*self.qkv.tensors, *self.out.tensors, *norms]
