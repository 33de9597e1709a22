"""Kimi Delta Attention (Kimi-Linear): the gated delta rule with a decay for every key channel, not only every head.

One step is `delta_rule.step`, which takes either. For a prompt the decay between two tokens now depends on the
channel, so that the overlap of two keys is a sum over channels of three factors; it is spelled out for 16 tokens at
a time. (Dividing the decays of two positions instead, as matrix products would need, overflows where one is small.)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine import spec as specs
from engine.hybrid_cache import StateViews
from engine.model import delta_rule, ops
from engine.model.attention import Step
from engine.model.linear import Linear
from engine.model.reader import Reader
from engine.model.short_conv import ShortConv

CHUNK = 16


@dataclass(frozen=True, slots=True)
class KimiDelta:
    """One layer's mixer. in_proj is q, k, v, the thin halves of forget and output gate, and write strength b."""

    sizes: specs.KimiDelta
    in_proj: Linear
    conv: ShortConv
    forget: Linear
    gate: Linear
    log_rate: Tensor
    rate_bias: Tensor
    norm: Tensor
    out: Linear
    eps: float

    @classmethod
    def read(cls, spec: specs.KimiDelta, reader: Reader, eps: float) -> KimiDelta:
        """Take one layer's weights, whose names begin with "self_attn."."""
        part = reader.under("self_attn.")
        return cls(
            sizes=spec,
            in_proj=part.linear("q_proj", "k_proj", "v_proj", "f_a_proj", "g_a_proj", "b_proj", bias=False),
            conv=ShortConv.read(part, "q_conv1d", "k_conv1d", "v_conv1d"),
            forget=part.linear("f_b_proj", bias=False),
            gate=part.linear("g_b_proj", bias=False),
            log_rate=part.vector("A_log"),
            rate_bias=part.vector("dt_bias"),
            norm=part.vector("o_norm.weight"),
            out=part.linear("o_proj", bias=False),
            eps=eps,
        )

    def __call__(self, x: Tensor, step: Step, memory: StateViews) -> Tensor:
        """[B*T, h] -> [B*T, h]; the states in `memory` move on by T tokens."""
        sizes = self.sizes
        shape = (step.batch, step.tokens, sizes.heads, sizes.dim)
        widths = [sizes.conv_channels, sizes.dim, sizes.dim, sizes.heads]
        mixed, forget, gate, strength = torch.split(self.in_proj(x), widths, dim=-1)

        q, k, v = self.conv(mixed.view(step.batch, step.tokens, -1), memory.conv).chunk(3, dim=-1)
        q = delta_rule.normalise(q.reshape(shape)) * sizes.dim**-0.5
        k, v = delta_rule.normalise(k.reshape(shape)), v.reshape(shape).float()
        rate = F.softplus(self.forget(forget).float() + self.rate_bias.float()).view(shape)
        log_decay = -self.log_rate.float().exp()[:, None] * rate
        strength = strength.sigmoid().float().view(shape[:3])
        out = delta_rule.advance(q, k, v, log_decay, strength, memory.state, _chunks)
        normed = ops.rms_norm(out.to(x.dtype), self.norm, self.eps)
        return self.out((normed * self.gate(gate).view(shape).sigmoid()).reshape(len(x), -1))

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        linears = (self.in_proj, self.forget, self.gate, self.out)
        vectors = [*self.conv.tensors, self.log_rate, self.rate_bias, self.norm]
        return [tensor for linear in linears for tensor in linear.tensors] + vectors


def _chunks(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor) -> Tensor:
    """[B, H, T, d] each, strength [B, H, T], behind `state`, which moves on; [B, H, T, d]."""
    out = []
    for first in range(0, q.shape[2], CHUNK):
        now = slice(first, first + CHUNK)
        decay, writes = log_decay[:, :, now], strength[:, :, now]
        out.append(_chunk(q[:, :, now], k[:, :, now], v[:, :, now], decay, writes, state))
    return torch.cat(out, dim=2)


def _chunk(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor) -> Tensor:
    """Up to 16 tokens, as in `delta_rule`, with the decay from j to i a vector over the key's channels."""
    since_start = log_decay.cumsum(2)  # [B, H, C, d]
    order = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).tril()[..., None]
    between = (since_start[:, :, :, None] - since_start[:, :, None]).masked_fill(~order, float("-inf")).exp()
    reaching = k[:, :, None] * between  # [B, H, i, j, d]: key j as it is left at i
    written = delta_rule.solve_writes(
        overlaps=(reaching @ k[..., None])[..., 0],
        surprise=v - (k * since_start.exp()) @ state,
        strength=strength,
    )
    out = (q * since_start.exp()) @ state + (reaching @ q[..., None])[..., 0] @ written
    to_end = since_start[:, :, -1:] - since_start
    state.mul_(since_start[:, :, -1].exp()[..., None]).add_((k * to_end.exp()).mT @ written)
    return out
