"""A mixture of experts: a router picks a few feed-forward parts for each token, and only those are read.

How many distinct ones a step hits is what its bytes depend on, so every call says it: `Experts.__call__` adds
the number to the list it is given. Tokens that chose the same expert go through it together, one read for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine import spec as specs
from engine.model.feed_forward import Activation, FeedForward
from engine.model.few_rows import side_by_side, takes_all
from engine.model.linear import Linear
from engine.model.reader import Reader

AT_ONCE_ROWS = 1024
"""Rows, of all experts together, up to which what is between their two products is held for all of them at once."""


@dataclass(frozen=True, slots=True)
class Router:
    """Scores every expert for every token and keeps the best `top_k`. `correction` shifts the choice alone."""

    rule: specs.Router
    top_k: int
    linear: Linear
    correction: Tensor | None

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, h] -> experts [rows, k] and their weights [rows, k]."""
        if self.rule.rule == "sigmoid":
            return self._by_sigmoid(x)
        scores = self.linear(x)
        if self.rule.rule == "softmax-chosen":
            best, chosen = scores.topk(self.top_k, dim=-1)
            return chosen, best.softmax(-1)
        shares, chosen = scores.softmax(-1, dtype=torch.float32).topk(self.top_k, dim=-1)
        if self.rule.renormalise:
            shares = shares / shares.sum(-1, keepdim=True)
        return chosen, shares.to(x.dtype)

    def _by_sigmoid(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """DeepSeek-V3's rule, in fp32: experts are scored alone, and chosen among the best groups of them."""
        scores = self.linear(x.float()).sigmoid()
        choice = scores if self.correction is None else scores + self.correction.float()
        if self.rule.groups > 1:
            choice = self._within_best_groups(choice)
        chosen = choice.topk(self.top_k, dim=-1).indices
        weights = scores.gather(-1, chosen)
        if self.rule.renormalise:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return chosen, (weights * self.rule.scale).to(x.dtype)

    def _within_best_groups(self, choice: Tensor) -> Tensor:
        """Scores of experts outside the best groups set aside; a group is as good as its two best experts."""
        grouped = torch.unflatten(choice, -1, (self.rule.groups, -1))
        strength = grouped.topk(2, dim=-1).values.sum(-1)
        kept = strength.topk(self.rule.groups_kept, dim=-1).indices
        dropped = torch.ones_like(strength, dtype=torch.bool).scatter_(-1, kept, False)
        return grouped.masked_fill(dropped[..., None], float("-inf")).flatten(-2)

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [*self.linear.tensors, *([] if self.correction is None else [self.correction])]


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts, stacked: up [E, m or 2m, h], down [E, h, m]; and the shared part every token passes.

    each: the same matrices as linears, up and down of one expert after another.
    """

    router: Router
    up: Tensor
    down: Tensor
    up_bias: Tensor | None
    down_bias: Tensor | None
    activation: Activation
    shared: FeedForward | None
    shared_gate: Linear | None
    each: tuple[tuple[Linear, Linear], ...]

    @classmethod
    def read(cls, spec: specs.Experts, reader: Reader, recipe: specs.Recipe) -> Experts:
        """Take one layer's weights, whose names begin with "mlp."."""
        part = reader.under("mlp.")
        # A sigmoid router's bias corrects the choice of experts and leaves their scores alone.
        corrects = spec.router_bias and recipe.router.rule == "sigmoid"
        shared = specs.Mlp(spec.shared_width, gated=spec.gated, activation=spec.activation)
        name = "gate_up_proj" if spec.gated else "up_proj"
        up, up_bias = part.vector(f"experts.{name}"), part.vector(f"experts.{name}_bias") if spec.bias else None
        down, down_bias = part.vector("experts.down_proj"), part.vector("experts.down_proj_bias") if spec.bias else None
        return cls(
            router=Router(
                recipe.router,
                spec.top_k,
                part.linear("gate", bias=spec.router_bias and not corrects),
                part.vector("gate.bias") if corrects else None,
            ),
            up=up,
            down=down,
            up_bias=up_bias,
            down_bias=down_bias,
            activation=Activation.of(spec.activation, gated=spec.gated, recipe=recipe),
            shared=FeedForward.read(shared, part.under("shared_expert."), recipe) if spec.shared_width else None,
            shared_gate=part.linear("shared_expert_gate", bias=False) if spec.shared_gate else None,
            each=tuple(zip(_linears(up, up_bias), _linears(down, down_bias), strict=True)),
        )

    def __call__(self, x: Tensor, distinct: list[int]) -> Tensor:
        """[rows, h] -> [rows, h]; the number of distinct experts hit is appended to `distinct`."""
        chosen, weights = self.router(x)
        out = torch.zeros_like(x)
        # Rows of (token, choice), sorted by expert: what one expert has to do lies together.
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.up)).tolist()
        hit = [(expert, count) for expert, count in enumerate(counts) if count]
        rows = order // chosen.shape[1]
        share = weights.flatten()[order, None]
        distinct.append(len(hit))
        at_once = self._at_once(hit, x, rows) if len(rows) <= AT_ONCE_ROWS else None
        if at_once is not None:
            out.index_add_(0, rows, at_once * share)
        else:
            self._one_by_one(hit, x, rows, share, out)
        return out if self.shared is None else out.add_(self._shared(x))

    def _at_once(self, hit: list[tuple[int, int]], x: Tensor, rows: Tensor) -> Tensor | None:
        """What the experts give for the rows that chose them, by two calls for all of them; None where one of them has
        more rows than the compiled kernel takes.
        """
        counts = [count for _, count in hit]
        ups, downs = ([self.each[expert][place].few for expert, _ in hit] for place in range(2))
        if not (takes_all(ups[0], counts, x.dtype) and takes_all(downs[0], counts, x.dtype)):
            return None
        return side_by_side(downs, counts, self.activation(side_by_side(ups, counts, x[rows])))

    def _one_by_one(self, hit: list[tuple[int, int]], x: Tensor, rows: Tensor, share: Tensor, out: Tensor) -> None:
        """Add to `out` what each expert gives for the rows that chose it, one expert after another."""
        first = 0
        for expert, count in hit:
            mine, (up, down) = slice(first, first + count), self.each[expert]
            out.index_add_(0, rows[mine], down(self.activation(up(x[rows[mine]]))) * share[mine])
            first += count

    def _shared(self, x: Tensor) -> Tensor:
        assert self.shared is not None
        out = self.shared(x)
        return out if self.shared_gate is None else out * self.shared_gate(x).sigmoid()

    @property
    def expert_bytes(self) -> int:
        """Bytes read for each distinct expert hit."""
        return sum(tensor.nbytes for tensor in self._routed) // len(self.up)

    @property
    def _routed(self) -> list[Tensor]:
        return [tensor for tensor in (self.up, self.down, self.up_bias, self.down_bias) if tensor is not None]

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        shared = [] if self.shared is None else self.shared.tensors
        gate = [] if self.shared_gate is None else self.shared_gate.tensors
        return [*self.router.tensors, *self._routed, *shared, *gate]


def _linears(stack: Tensor, bias: Tensor | None) -> list[Linear]:
    """Each of the stacked matrices [E, out, in] as a linear, with its bias of [E, out]; views, not copies."""
    biases = [None] * len(stack) if bias is None else bias.unbind()
    return [Linear.of(matrix, own) for matrix, own in zip(stack.unbind(), biases, strict=True)]
