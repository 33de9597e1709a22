"""Gated DeltaNet (Qwen3-Next, Qwen3.5 to 3.8): three layers of four keep a state of fixed size instead of a cache.

The state is one [dk, dv] matrix for each value head, in fp32, read and written once a token: its bytes do not
depend on the context. `engine.model.delta_rule` has the recurrence; this file has what stands around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine import flash_delta
from engine import spec as specs
from engine.hybrid_cache import StateViews
from engine.model import delta_rule, ops
from engine.model.attention import Step
from engine.model.linear import Linear
from engine.model.reader import Reader
from engine.model.short_conv import ShortConv


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """One layer's mixer. in_proj is q, k, v, the output gate z, write strength b and decay a, in one matrix."""

    sizes: specs.GatedDeltaNet
    in_proj: Linear
    conv: ShortConv
    log_rate: Tensor
    rate_bias: Tensor
    norm: Tensor
    out: Linear
    eps: float

    @classmethod
    def read(cls, spec: specs.GatedDeltaNet, reader: Reader, eps: float) -> GatedDeltaNet:
        """Take one layer's weights, whose names begin with "linear_attn."."""
        part = reader.under("linear_attn.")
        return cls(
            sizes=spec,
            in_proj=part.linear("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", bias=False),
            conv=ShortConv.read(part, "conv1d"),
            log_rate=part.vector("A_log"),
            rate_bias=part.vector("dt_bias"),
            norm=part.vector("norm.weight"),
            out=part.linear("out_proj", bias=False),
            eps=eps,
        )

    def __call__(self, x: Tensor, step: Step, memory: StateViews) -> Tensor:
        """[B*T, h] -> [B*T, h]; the states in `memory` move on by T tokens."""
        sizes = self.sizes
        inner, heads = sizes.value_heads * sizes.value_dim, sizes.value_heads
        projected = self.in_proj(x).view(step.batch, step.tokens, -1)
        mixed, gate, strength, decay = torch.split(projected, [sizes.conv_channels, inner, heads, heads], dim=-1)

        q, k, v = self._heads(self.conv(mixed, memory.conv))
        strength = strength.sigmoid().float()
        log_decay = -self.log_rate.float().exp() * F.softplus(decay.float() + self.rate_bias.float())
        if flash_delta.usable(x.device, x.dtype):
            out = flash_delta.advance(q, k, v, log_decay, strength, memory.state, x.dtype)
        else:
            out = delta_rule.advance(q, k, v, log_decay, strength, memory.state, delta_rule.chunks)
        normed = ops.rms_norm(out.to(x.dtype), self.norm, self.eps)
        return self.out((normed * F.silu(gate.view_as(normed))).reshape(len(x), inner))

    def _heads(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k [B, T, H, dk] of unit length, v [B, T, H, dv]; each key head serves the next H/Hk value heads."""
        sizes = self.sizes
        width = sizes.key_heads * sizes.key_dim
        q, k, v = torch.split(mixed, [width, width, sizes.value_heads * sizes.value_dim], dim=-1)
        shared = sizes.value_heads // sizes.key_heads
        q = delta_rule.normalise(torch.unflatten(q, -1, (-1, sizes.key_dim))) * sizes.key_dim**-0.5
        k = delta_rule.normalise(torch.unflatten(k, -1, (-1, sizes.key_dim)))
        v = torch.unflatten(v, -1, (-1, sizes.value_dim)).float()
        return q.repeat_interleave(shared, dim=2), k.repeat_interleave(shared, dim=2), v

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        vectors = [self.log_rate, self.rate_bias, self.norm]
        return [*self.in_proj.tensors, *self.conv.tensors, *vectors, *self.out.tensors]
