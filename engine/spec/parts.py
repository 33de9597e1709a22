"""What a decoder is made of, as plain frozen data: weights, rotary positions, mixers, feed-forward parts.

Every part lists its weights with the shapes a checkpoint stores, so that parameter counts, bytes and FLOPs
all come from one list. Shapes are [out, in] as in `torch.nn.Linear`. Knows nothing of bytes, devices or configs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

# How a weight counts: a matrix is multiplied; a vector is read and used elementwise; the norms of hidden size and
# the look-up tables are told apart because the lesson's "matmul params" leave those two out and keep the other vectors.
Use = Literal["matrix", "vector", "hidden_norm", "table"]

# Which part of the model a weight belongs to. Checkpoints quantise by part (gpt-oss: only the experts).
Role = Literal["attention", "mlp", "experts", "shared_experts", "router", "head", "embedding", "norm"]


@dataclass(frozen=True, slots=True)
class Weight:
    """One stored tensor (`copies` of it, for experts). `op` names the ledger's op that reads it."""

    name: str
    shape: tuple[int, ...]
    op: str
    role: Role
    use: Use = "matrix"
    copies: int = 1

    @property
    def parameters(self) -> int:
        """Elements in all copies."""
        return math.prod(self.shape) * self.copies


@dataclass(frozen=True, slots=True)
class Rotary:
    """Rotary positions: the base, how many of a head's dimensions turn, and how long contexts are scaled.

    kind: "default", "linear", "llama3", "yarn", "dynamic" or "longrope"; the other fields are those kinds' own.
    attention_factor: YaRN multiplies cos and sin by it. score_factor: latent attention multiplies its scores by it.
    """

    theta: float
    dims: int
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int | None = None
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    score_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax attention with `heads` query heads over `kv_heads` key/value heads (MHA, GQA and MQA alike).

    window: keys a query sees, itself included; None sees all. output_gate: q_proj is twice as wide.
    sinks: one learned logit a query head. qk_norm: q and k are RMS-normalised over head_dim before rotary.
    """

    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    window: int | None = None
    rotary: Rotary | None = None
    output_gate: bool = False
    sinks: bool = False

    @property
    def q_width(self) -> int:
        """Rows of the query projection (doubled by an output gate)."""
        return self.heads * self.head_dim * (2 if self.output_gate else 1)

    @property
    def kv_width(self) -> int:
        """Rows of the key projection, and of the value projection."""
        return self.kv_heads * self.head_dim

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """q, k, v, o and what belongs to them."""
        q, kv, inner = self.q_width, self.kv_width, self.heads * self.head_dim
        found = [
            _linear("self_attn.q_proj", q, hidden, "qkv_proj"),
            _linear("self_attn.k_proj", kv, hidden, "qkv_proj"),
        ]
        found += [
            _linear("self_attn.v_proj", kv, hidden, "qkv_proj"),
            _linear("self_attn.o_proj", hidden, inner, "o_proj"),
        ]
        if self.qkv_bias:
            found += [_vector(f"self_attn.{x}_proj.bias", n, "qkv_proj") for x, n in (("q", q), ("k", kv), ("v", kv))]
        if self.o_bias:
            found.append(_vector("self_attn.o_proj.bias", hidden, "o_proj"))
        if self.qk_norm:
            found += [_vector(f"self_attn.{x}_norm.weight", self.head_dim, f"{x}_norm") for x in "qk"]
        if self.sinks:
            found.append(_vector("self_attn.sinks", self.heads, "attention"))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Mlp:
    """A dense feed-forward part: gate, up and down (SwiGLU-like), or up and down alone when not gated."""

    width: int
    gated: bool = True
    bias: bool = False
    activation: str = "silu"

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """gate, up, down and their biases."""
        names = ("gate", "up") if self.gated else ("up",)
        found = [_linear(f"mlp.{x}_proj", self.width, hidden, self.up_op, "mlp") for x in names]
        found.append(_linear("mlp.down_proj", hidden, self.width, "down_proj", "mlp"))
        if self.bias:
            found += [_vector(f"mlp.{x}_proj.bias", self.width, self.up_op, "mlp") for x in names]
            found.append(_vector("mlp.down_proj.bias", hidden, "down_proj", "mlp"))
        return tuple(found)

    @property
    def up_op(self) -> str:
        """The name of the op that widens: gate and up are one matrix in this engine."""
        return "gate_up_proj" if self.gated else "up_proj"


def _linear(name: str, n: int, k: int, op: str, role: Role = "attention") -> Weight:
    return Weight(f"{name}.weight", (n, k), op, role)


def _vector(name: str, n: int, op: str, role: Role = "attention") -> Weight:
    return Weight(name, (n,), op, role, use="vector")
