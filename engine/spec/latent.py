"""Latent attention (MLA): keys and values are kept as one compressed vector a token, shared by all heads."""

from __future__ import annotations

from dataclasses import dataclass

from engine.spec.parts import Rotary, Weight


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """DeepSeek-V2/V3 attention. `rank` + `rope_dim` numbers a token are cached, whatever the number of heads.

    q_rank: the query goes through a low rank too; None projects it directly. output_gate: o_proj's input is gated.
    rotary: None where no position is encoded (Kimi-Linear's NoPE; the rope_dim part is cached all the same).
    """

    heads: int
    rank: int
    rope_dim: int
    nope_dim: int
    value_dim: int
    q_rank: int | None = None
    rotary: Rotary | None = None
    output_gate: bool = False

    @property
    def cached_width(self) -> int:
        """Numbers kept per token and layer."""
        return self.rank + self.rope_dim

    @property
    def expanded_width(self) -> int:
        """Numbers per token and layer once keys and values are spelled out for every head."""
        return self.heads * (self.nope_dim + self.rope_dim + self.value_dim)

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """The query path, the compression, the expansion kv_b, the output; and the norms inside."""
        q_width = self.heads * (self.nope_dim + self.rope_dim)
        if self.q_rank is None:
            found = [_matrix("q_proj", q_width, hidden, "q_proj")]
        else:
            found = [
                _matrix("q_a_proj", self.q_rank, hidden, "q_a_proj"),
                _norm("q_a_layernorm", self.q_rank, "q_a_norm"),
            ]
            found.append(_matrix("q_b_proj", q_width, self.q_rank, "q_b_proj"))
        found.append(_matrix("kv_a_proj_with_mqa", self.cached_width, hidden, "kv_a_proj"))
        found.append(_norm("kv_a_layernorm", self.rank, "kv_a_norm"))
        found.append(_matrix("kv_b_proj", self.heads * (self.nope_dim + self.value_dim), self.rank, "kv_b_proj"))
        if self.output_gate:
            found.append(_matrix("g_proj", self.heads * self.value_dim, hidden, "output_gate_proj"))
        found.append(_matrix("o_proj", hidden, self.heads * self.value_dim, "o_proj"))
        return tuple(found)


def _matrix(name: str, n: int, k: int, op: str) -> Weight:
    return Weight(f"self_attn.{name}.weight", (n, k), op, "attention")


def _norm(name: str, n: int, op: str) -> Weight:
    return Weight(f"self_attn.{name}.weight", (n,), op, "attention", "vector")
