"""Latent attention (DeepSeek-V2/V3, Kimi-K2): the cache holds one compressed vector a token, shared by all heads.

A token's keys and values are linear in its latent c: k_h = K_h c and v_h = V_h c for each head h. So there are two
ways to attend to the cache, equal in every number and far apart in cost:

    absorbed     score = (K_h^T q_h) . c, out_h = V_h (sum of c): the cache is read as it is. The default.
    re-expanded  k_h and v_h of all positions are computed from the cache at every step, and then attended to.

Beside the latent stands one short key that carries the position and is shared by all heads too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine import spec as specs
from engine.hybrid_cache import LatentViews
from engine.model import ops
from engine.model.attention import Step
from engine.model.linear import Linear
from engine.model.reader import Reader

Form = Literal["absorbed", "re-expanded"]
NORM_EPS = 1e-6  # of the two norms inside; DeepSeek's code does not take it from the config


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """One layer's mixer. `compress` makes latent and position key; `expand` [H, no + v, r] is K_h above V_h."""

    sizes: specs.LatentAttention
    query: Linear
    query_norm: Tensor | None
    query_up: Linear | None
    compress: Linear
    latent_norm: Tensor
    expand: Tensor
    out: Linear
    scale: float
    form: Form = "absorbed"

    @classmethod
    def read(cls, spec: specs.LatentAttention, reader: Reader, recipe: specs.Recipe) -> LatentAttention:
        """Take one layer's weights, whose names begin with "self_attn."."""
        part = reader.under("self_attn.")
        low_rank = spec.q_rank is not None
        query = part.linear("q_a_proj" if low_rank else "q_proj", bias=False)
        query_up = part.linear("q_b_proj", bias=False) if low_rank else None
        compress = part.linear("kv_a_proj_with_mqa", bias=False)
        if recipe.interleaved_rotary and spec.rotary is not None:
            heads = (query_up or query).weight.view(spec.heads, -1, (query_up or query).weight.shape[1])
            _halves_apart_(heads[:, spec.nope_dim :])
            _halves_apart_(compress.weight[None, spec.rank :])
        width = spec.nope_dim + spec.rope_dim
        return cls(
            sizes=spec,
            query=query,
            query_norm=part.vector("q_a_layernorm.weight") if low_rank else None,
            query_up=query_up,
            compress=compress,
            latent_norm=part.vector("kv_a_layernorm.weight"),
            expand=part.vector("kv_b_proj.weight").view(spec.heads, -1, spec.rank),
            out=part.linear("o_proj", bias=False),
            scale=width**-0.5 * (1.0 if spec.rotary is None else spec.rotary.score_factor),
        )

    def __call__(self, x: Tensor, step: Step, cache: LatentViews) -> Tensor:
        """[B*T, h] -> [B*T, h]; this step's latents are written to the cache on the way."""
        sizes = self.sizes
        queries = self._queries(x).view(step.batch, step.tokens, sizes.heads, -1)
        compressed = self.compress(x).view(step.batch, step.tokens, 1, -1)
        latent = compressed[..., : sizes.rank]
        latent.copy_(ops.rms_norm(latent, self.latent_norm, NORM_EPS))
        if sizes.rotary is not None:
            ops.rotate_heads_(queries[..., sizes.nope_dim :], step.cos, step.signed_sin)
            ops.rotate_heads_(compressed[..., sizes.rank :], step.cos, step.signed_sin)
        cache.new.copy_(compressed[:, :, 0])
        # A prompt's keys and values are spelled out either way: all its queries use them.
        if step.tokens == 1 and self.form == "absorbed":
            return self.out(self._absorbed(queries[:, 0], cache.filled))
        return self.out(self._expanded(queries, cache.filled))

    def _queries(self, x: Tensor) -> Tensor:
        if self.query_norm is None or self.query_up is None:
            return self.query(x)
        return self.query_up(ops.rms_norm(self.query(x), self.query_norm, NORM_EPS))

    def _absorbed(self, queries: Tensor, filled: Tensor) -> Tensor:
        """[B, H, no + ro] over the cache [B, S, r + ro] as it is; [B, H*v]."""
        sizes = self.sizes
        content, position = queries[..., : sizes.nope_dim], queries[..., sizes.nope_dim :]
        turned = (content.transpose(0, 1) @ self.expand[:, : sizes.nope_dim]).transpose(0, 1)
        probes = torch.cat((turned, position), dim=-1)[:, None]  # all heads are rows over one shared key
        keys = filled[:, None]
        mixed = F.scaled_dot_product_attention(probes, keys, keys[..., : sizes.rank], scale=self.scale)
        return (mixed[:, 0].transpose(0, 1) @ self.expand[:, sizes.nope_dim :].mT).transpose(0, 1).flatten(1)

    def _expanded(self, queries: Tensor, filled: Tensor) -> Tensor:
        """[B, T, H, no + ro] over keys and values of every head and position, made from the cache; [B*T, H*v]."""
        sizes = self.sizes
        spelled = filled[:, None, :, : sizes.rank] @ self.expand.mT  # [B, H, S, no + v]
        content, values = spelled[..., : sizes.nope_dim], spelled[..., sizes.nope_dim :]
        position = filled[:, None, :, sizes.rank :].expand(-1, sizes.heads, -1, -1)
        keys = torch.cat((content, position), dim=-1)
        mixed = ops.causal_attention(queries.transpose(1, 2), keys, values, self.scale)
        return mixed.transpose(1, 2).flatten(2).flatten(0, 1)

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        query = [*self.query.tensors, *([] if self.query_up is None else self.query_up.tensors)]
        norms = [self.latent_norm, *([] if self.query_norm is None else [self.query_norm])]
        return [*query, *norms, *self.compress.tensors, self.expand, *self.out.tensors]


def _halves_apart_(rows: Tensor) -> None:
    """[H, ro, n]: rows in pairs (0, 1), (2, 3), ... put so that row i pairs with row i + ro/2, as `ops` turns them."""
    rows.copy_(torch.cat((rows[:, ::2], rows[:, 1::2]), dim=1))
