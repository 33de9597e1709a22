"""A step multiplies by the matrices of its ledger, at the rows the ledger says, for every family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from family_helpers import CONFIGS, engine_of, reference, tokens
from torch import Tensor

from engine import ledger
from engine.ledger import StepLedger
from engine.model import experts
from engine.model.few_rows import FewRows, side_by_side
from engine.model.linear import Linear

# Latent attention applies kv_b_proj to queries or to cached latents head by head, and not as one linear.
BY_HEAD = "kv_b_proj"
ROUTED = ("experts_gate_up_proj", "experts_down_proj", "experts_up_proj")
Product = tuple[int, int, int]


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> Counter[Product]:
    """Counts (rows, k, n) of every matrix product, whichever way it goes."""
    seen: Counter[Product] = Counter()
    linear = Linear.__call__

    def watched(own: Linear, x: Tensor) -> Tensor:
        n, k = own.shape
        seen[len(x), k, n] += 1
        return linear(own, x)

    def watched_experts(each: Sequence[FewRows], counts: Sequence[int], x: Tensor) -> Tensor:
        for few, count in zip(each, counts, strict=True):
            seen[count, few.product.width, few.product.n] += 1
        return side_by_side(each, counts, x)

    monkeypatch.setattr(Linear, "__call__", watched)
    monkeypatch.setattr(experts, "side_by_side", watched_experts)
    return seen


def listed(step: StepLedger) -> Counter[Product]:
    """The same from the ledger, without experts, whose rows depend on the router."""
    found: Counter[Product] = Counter()
    for op in step.ops:
        if op.kind == "linear" and op.name not in (BY_HEAD, *ROUTED):
            found[op.rows, op.k, op.n] += op.count
    return found


def routed(step: StepLedger) -> Counter[tuple[int, int]]:
    """Rows that all experts of a shape see together, by (k, n)."""
    found: Counter[tuple[int, int]] = Counter()
    for op in step.ops:
        if op.name in ROUTED:
            found[op.k, op.n] += op.rows * op.count
    return found


@pytest.mark.parametrize("kind", CONFIGS)
def test_linears_are_those_of_the_ledger(kind: str, products: Counter[Product]) -> None:
    model = engine_of(reference(kind))
    products.clear()
    ids = tokens(2, 7)
    for work, step in (
        (lambda: model.prefill(ids[:, :6]), ledger.prefill(model.spec, 6, batch=2)),
        (lambda: model.decode(ids[:, 6]), ledger.decode(model.spec, 7, batch=2)),
    ):
        work()
        through_experts: Counter[tuple[int, int]] = Counter()
        wanted, experts = listed(step), routed(step)
        for (rows, k, n), count in (products - wanted).items():
            through_experts[k, n] += rows * count
        assert wanted - products == Counter()
        assert through_experts == experts
        products.clear()
