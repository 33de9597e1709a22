"""Mixers that keep a state of fixed size instead of a growing cache: Gated DeltaNet, Kimi Delta, Mamba2.

Each also runs a short depthwise convolution whose last inputs are kept per sequence (the conv state).
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.spec.parts import Use, Weight


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """Qwen3-Next / Qwen3.5's linear attention: one key_dim x value_dim state for each *value* head."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def conv_channels(self) -> int:
        """q, k and v pass the convolution together."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def state_size(self) -> int:
        """Numbers in the recurrent state of one sequence and layer."""
        return self.value_heads * self.key_dim * self.value_dim

    @property
    def conv_bias(self) -> bool:
        """Its convolution has no bias."""
        return False

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Projections to qkv, z, b, a, the convolution, decay and gated norm, the output."""
        inner = self.value_heads * self.value_dim
        return (
            _weight("linear_attn.in_proj_qkv.weight", (self.conv_channels, hidden), "in_proj"),
            _weight("linear_attn.in_proj_z.weight", (inner, hidden), "in_proj"),
            _weight("linear_attn.in_proj_b.weight", (self.value_heads, hidden), "in_proj"),
            _weight("linear_attn.in_proj_a.weight", (self.value_heads, hidden), "in_proj"),
            _weight("linear_attn.conv1d.weight", (self.conv_channels, 1, self.kernel), "conv", "vector"),
            _weight("linear_attn.A_log", (self.value_heads,), "recurrence", "vector"),
            _weight("linear_attn.dt_bias", (self.value_heads,), "recurrence", "vector"),
            _weight("linear_attn.norm.weight", (self.value_dim,), "gated_norm", "vector"),
            _weight("linear_attn.out_proj.weight", (hidden, inner), "out_proj"),
        )

    def recurrence_flops(self) -> int:
        """FLOPs of one token: k^T S, the rank-1 update and q^T S (2 each), and one multiply for the decay."""
        return 7 * self.state_size

    def chunked_flops(self, chunk: int) -> int:
        """FLOPs of one token in the chunked form: the GEMMs with the state, within the chunk, and its two solves."""
        k, v = self.key_dim, self.value_dim
        return self.value_heads * (6 * k * v + chunk * (4 * k + 2 * v) + chunk * (k + v))


@dataclass(frozen=True, slots=True)
class KimiDelta:
    """Kimi Delta Attention: the same recurrence with a decay per key channel, the same heads for q, k and v.

    full_rank_gate: forget and output gate are whole matrices (Kimi-K3) instead of two thin ones.
    """

    heads: int
    dim: int
    kernel: int
    full_rank_gate: bool = False

    @property
    def conv_channels(self) -> int:
        """Three convolutions, over q, k and v."""
        return 3 * self.heads * self.dim

    @property
    def state_size(self) -> int:
        """Numbers in the recurrent state of one sequence and layer."""
        return self.heads * self.dim * self.dim

    @property
    def conv_bias(self) -> bool:
        """Its convolutions have no bias."""
        return False

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """q, k, v and their convolutions, the forget gate f, the write strength b, the output gate g, the output."""
        inner = self.heads * self.dim
        found = [_weight(f"self_attn.{x}_proj.weight", (inner, hidden), "in_proj") for x in "qkv"]
        found += [_weight(f"self_attn.{x}_conv1d.weight", (inner, 1, self.kernel), "conv", "vector") for x in "qkv"]
        for gate in "fg":
            if self.full_rank_gate:
                found.append(_weight(f"self_attn.{gate}_proj.weight", (inner, hidden), "in_proj"))
            else:
                found.append(_weight(f"self_attn.{gate}_a_proj.weight", (self.dim, hidden), "in_proj"))
                found.append(_weight(f"self_attn.{gate}_b_proj.weight", (inner, self.dim), f"{gate}_b_proj"))
        found.append(_weight("self_attn.b_proj.weight", (self.heads, hidden), "in_proj"))
        found.append(_weight("self_attn.A_log", (self.heads,), "recurrence", "vector"))
        found.append(_weight("self_attn.dt_bias", (inner,), "recurrence", "vector"))
        found.append(_weight("self_attn.o_norm.weight", (self.dim,), "gated_norm", "vector"))
        found.append(_weight("self_attn.o_proj.weight", (hidden, inner), "out_proj"))
        return tuple(found)

    def recurrence_flops(self) -> int:
        """FLOPs of one token, as for the gated delta rule: the decay is per channel but one multiply all the same."""
        return 7 * self.state_size

    def chunked_flops(self, chunk: int) -> int:
        """FLOPs of one token in the chunked form, as for the gated delta rule with equal key and value widths."""
        return self.heads * (6 * self.dim * self.dim + chunk * 6 * self.dim + chunk * 2 * self.dim)


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Mamba2 (Nemotron-H, Granite hybrids, Bamba): `heads` x `head_dim` channels, each with `state` numbers."""

    heads: int
    head_dim: int
    groups: int
    state: int
    kernel: int
    conv_bias: bool = True
    proj_bias: bool = False

    @property
    def inner(self) -> int:
        """Width of the gated inner stream."""
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        """x, B and C pass the convolution; B and C once a group, not once a head."""
        return self.inner + 2 * self.groups * self.state

    @property
    def state_size(self) -> int:
        """Numbers in the recurrent state of one sequence and layer."""
        return self.inner * self.state

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """One projection to gate, x, B, C and dt; the convolution; decay, skip and gated norm; the output."""
        in_width = self.inner + self.conv_channels + self.heads
        found = [_weight("mixer.in_proj.weight", (in_width, hidden), "in_proj")]
        found.append(_weight("mixer.conv1d.weight", (self.conv_channels, 1, self.kernel), "conv", "vector"))
        if self.conv_bias:
            found.append(_weight("mixer.conv1d.bias", (self.conv_channels,), "conv", "vector"))
        found += [_weight(f"mixer.{x}", (self.heads,), "recurrence", "vector") for x in ("A_log", "D", "dt_bias")]
        found.append(_weight("mixer.norm.weight", (self.inner,), "gated_norm", "vector"))
        found.append(_weight("mixer.out_proj.weight", (hidden, self.inner), "out_proj"))
        if self.proj_bias:
            found.append(_weight("mixer.in_proj.bias", (in_width,), "in_proj", "vector"))
            found.append(_weight("mixer.out_proj.bias", (hidden,), "out_proj", "vector"))
        return tuple(found)

    def recurrence_flops(self) -> int:
        """FLOPs of one token: decay (1), dt x B (1 after dt x), the add (1) and the read with C (2); dt x and D x."""
        return 5 * self.state_size + 2 * self.inner

    def chunked_flops(self, chunk: int) -> int:
        """FLOPs of one token in the chunked (SSD) form: C B^T and its use within the chunk, and the state GEMMs."""
        within = chunk * (2 * self.groups * self.state + 2 * self.inner)
        return within + 4 * self.state_size


def _weight(name: str, shape: tuple[int, ...], op: str, use: Use = "matrix") -> Weight:
    return Weight(name, shape, op, "attention", use)
