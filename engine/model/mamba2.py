"""Mamba2 (Nemotron-H, Granite hybrids): a state that decays by one number a head and is only ever added to.

For each head, with step dt, input x [P], and B, C [N] shared by the heads of a group (Dao and Gu, 2024),

    S <- e^(A dt) S + dt x B^T        y = S C + D x

One token does exactly this; a prompt does it 64 tokens at a time as matrix products. The state is fp32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine import spec as specs
from engine.hybrid_cache import StateViews
from engine.model.attention import Step
from engine.model.linear import Linear
from engine.model.reader import Reader
from engine.model.short_conv import ShortConv

CHUNK = 64


@dataclass(frozen=True, slots=True)
class Mamba2:
    """One layer's mixer. in_proj is the gate z, then x, B and C, which pass the convolution, then dt."""

    sizes: specs.Mamba2
    in_proj: Linear
    conv: ShortConv
    log_rate: Tensor
    skip: Tensor
    step_bias: Tensor
    norm: Tensor
    out: Linear
    eps: float
    step_min: float
    norm_groups: int

    @classmethod
    def read(cls, spec: specs.Mamba2, reader: Reader, eps: float, recipe: specs.Recipe) -> Mamba2:
        """Take one layer's weights, whose names begin with "mixer."."""
        part = reader.under("mixer.")
        return cls(
            sizes=spec,
            in_proj=part.linear("in_proj", bias=spec.proj_bias),
            conv=ShortConv.read(part, "conv1d", bias=spec.conv_bias),
            log_rate=part.vector("A_log"),
            skip=part.vector("D"),
            step_bias=part.vector("dt_bias"),
            norm=part.vector("norm.weight"),
            out=part.linear("out_proj", bias=spec.proj_bias),
            eps=eps,
            step_min=recipe.time_step_min,
            norm_groups=recipe.norm_groups,
        )

    def __call__(self, x: Tensor, step: Step, memory: StateViews) -> Tensor:
        """[B*T, h] -> [B*T, h]; the states in `memory` move on by T tokens."""
        sizes = self.sizes
        projected = self.in_proj(x).view(step.batch, step.tokens, -1)
        gate, mixed, dt = torch.split(projected, [sizes.inner, sizes.conv_channels, sizes.heads], dim=-1)
        inputs, writes, reads = self._streams(self.conv(mixed, memory.conv))
        dt = F.softplus(dt + self.step_bias).float()
        if step.tokens > 1:
            dt = dt.clamp(min=self.step_min)  # the reference holds a prompt's steps above this, one token's not
        log_decay = -self.log_rate.float().exp() * dt

        out = []
        for first in range(0, step.tokens, CHUNK):
            now = slice(first, first + CHUNK)
            stepped = inputs[:, :, now] * dt.mT[:, :, now, None]
            out.append(_chunk(stepped, writes[:, :, now], reads[:, :, now], log_decay.mT[:, :, now], memory.state))
        mixed = torch.cat(out, dim=2) + inputs * self.skip.float()[:, None, None]
        return self.out(self._gated_norm(mixed.transpose(1, 2).reshape(len(x), -1), gate.reshape(len(x), -1)))

    def _streams(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, H, T, P], and B and C [B, H, T, N], each group's shared by its heads, in fp32."""
        sizes = self.sizes
        wide = sizes.groups * sizes.state
        inputs, writes, reads = torch.split(mixed.float(), [sizes.inner, wide, wide], dim=-1)
        shared = sizes.heads // sizes.groups

        def by_head(stream: Tensor, heads: int) -> Tensor:
            return torch.unflatten(stream, -1, (heads, -1)).transpose(1, 2)

        grouped = [by_head(stream, sizes.groups).repeat_interleave(shared, dim=1) for stream in (writes, reads)]
        return by_head(inputs, sizes.heads), grouped[0], grouped[1]

    def _gated_norm(self, out: Tensor, gate: Tensor) -> Tensor:
        """rms_norm(out * silu(gate)), over each group's channels apart."""
        gated = torch.unflatten(out * F.silu(gate.float()), -1, (self.norm_groups, -1))
        normed = F.rms_norm(gated, gated.shape[-1:], None, self.eps).flatten(-2)
        return normed.to(self.norm.dtype) * self.norm

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        vectors = [self.log_rate, self.skip, self.step_bias, self.norm]
        return [*self.in_proj.tensors, *self.conv.tensors, *vectors, *self.out.tensors]


def _chunk(inputs: Tensor, writes: Tensor, reads: Tensor, log_decay: Tensor, state: Tensor) -> Tensor:
    """Up to 64 tokens, or one: inputs (times dt) [B, H, C, P], writes and reads [B, H, C, N], state [B, H, P, N]."""
    since_start = log_decay.cumsum(-1)[..., None]
    between = (since_start - since_start.mT).tril().exp().tril()
    out = (reads * since_start.exp()) @ state.mT + ((reads @ writes.mT) * between) @ inputs
    to_end = since_start[:, :, -1:] - since_start
    state.mul_(since_start[:, :, -1:].exp()).add_((inputs * to_end.exp()).mT @ writes)
    return out
