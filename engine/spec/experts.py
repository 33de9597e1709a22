"""A mixture of experts: a router, many routed experts, and shared ones that every token passes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.spec.parts import Role, Weight


@dataclass(frozen=True, slots=True)
class Experts:
    """`top_k` of `experts` feed-forward parts of `width` per token, plus `shared_width` columns that all tokens use.

    latent: routed experts work at this width instead of the hidden size, between one projection down and one up;
    latent_norm: what comes down is normalised.
    shared_gate: one more row that scales the shared part. router_bias / bias: learned biases, where they exist.
    """

    experts: int
    top_k: int
    width: int
    shared_width: int = 0
    shared_gate: bool = False
    router_bias: bool = False
    bias: bool = False
    gated: bool = True
    latent: int | None = None
    latent_norm: bool = False
    activation: str = "silu"

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Router, experts (as copies), shared part. Experts are named as packed by modern checkpoints."""
        found = [Weight("mlp.gate.weight", (self.experts, hidden), "router", "router")]
        if self.router_bias:
            found.append(Weight("mlp.gate.bias", (self.experts,), "router", "router", "vector"))
        inner = self.latent or hidden
        if self.latent:
            found.append(Weight("mlp.latent_down_proj.weight", (self.latent, hidden), "latent_down_proj", "mlp"))
            if self.latent_norm:
                found.append(Weight("mlp.latent_norm.weight", (self.latent,), "latent_norm", "mlp", "vector"))
            found.append(Weight("mlp.latent_up_proj.weight", (hidden, self.latent), "latent_up_proj", "mlp"))
        return (*found, *self._routed(inner), *self._shared(hidden))

    def with_shared(self, width: int) -> Experts:
        """The same with a shared part of this width."""
        return replace(self, shared_width=width)

    def _routed(self, inner: int) -> list[Weight]:
        names = ("gate", "up") if self.gated else ("up",)
        up, down, count = "experts_gate_up_proj", "experts_down_proj", self.experts
        found = [
            Weight(f"mlp.experts.{x}_proj.weight", (self.width, inner), up, "experts", copies=count) for x in names
        ]
        found.append(Weight("mlp.experts.down_proj.weight", (inner, self.width), down, "experts", copies=count))
        if self.bias:
            found += [
                Weight(f"mlp.experts.{x}_proj.bias", (self.width,), up, "experts", "vector", count) for x in names
            ]
            found.append(Weight("mlp.experts.down_proj.bias", (inner,), down, "experts", "vector", count))
        return found

    def _shared(self, hidden: int) -> list[Weight]:
        if not self.shared_width:
            return []
        names = ("gate", "up") if self.gated else ("up",)
        up, down = "shared_gate_up_proj", "shared_down_proj"
        role: Role = "shared_experts"
        found = [Weight(f"mlp.shared_expert.{x}_proj.weight", (self.shared_width, hidden), up, role) for x in names]
        found.append(Weight("mlp.shared_expert.down_proj.weight", (hidden, self.shared_width), down, role))
        if self.shared_gate:
            found.append(Weight("mlp.shared_expert_gate.weight", (1, hidden), "shared_gate", "router"))
        return found

    def active_parameters(self, hidden: int) -> int:
        """Parameters of the routed experts that one token passes."""
        return sum(weight.parameters for weight in self._routed(self.latent or hidden)) // self.experts * self.top_k

    def expected_distinct(self, tokens: float) -> float:
        """Experts that `tokens` tokens touch together: E (1 - (1 - k/E)^n).

        Exact in expectation for uniform routing, an upper bound for skewed routing. Works on arrays of tokens.
        """
        untouched: float = (1 - self.top_k / self.experts) ** tokens
        return self.experts * (1 - untouched)
