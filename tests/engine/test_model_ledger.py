"""The ledger says what this engine does: FLOPs as torch counts them, bytes as the tensors have them, op by op."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
import torch
from model_helpers import engine_of, reference
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from engine import ledger
from engine.model import Model, attention, decoder, mlp, ops
from engine.model.linear import Linear

# torch's unfused attention computes every pair, the masked ones too; the rest is as the engine really does it.
AS_COUNTED = dataclasses.replace(ledger.ENGINE, pairs="square")
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    kind, changes = MODELS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROOFLINE_LAB_KERNELS", "torch")  # torch cannot count what it does not compute
        return engine_of(reference(kind, **changes))


def prompt(batch: int, tokens: int) -> torch.Tensor:
    return torch.ones(batch, tokens, dtype=torch.long)


def counted(work: Any) -> int:
    """FLOPs of `work` as torch counts them. Its fused CPU attention is not counted at all, hence MATH."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        work()
    return counter.get_total_flops()


@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (1, 65), (3, 17)])
def test_flops_equal_torchs_counter(model: Model, batch: int, tokens: int) -> None:
    found = counted(lambda: model.prefill(prompt(batch, tokens)))
    assert found == ledger.prefill(model.spec, tokens, batch=batch, convention=AS_COUNTED).flops
    found = counted(lambda: model.decode(prompt(batch, 1)[:, 0]))
    assert found == ledger.decode(model.spec, tokens + 1, batch=batch, convention=AS_COUNTED).flops


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16")])
def test_resident_bytes_equal_the_tensors(dtype: torch.dtype, name: Any) -> None:
    for kind, changes in MODELS.values():
        model = engine_of(reference(kind, **changes), dtype=dtype, max_tokens=50)
        model.prefill(prompt(3, 9))
        formats = ledger.Formats(weights=name, kv=name)
        held = ledger.resident(model.spec, batch=3, max_tokens=50, filled=9, formats=formats)
        assert model.resident_weight_bytes == held.weights
        assert (model.cache.bytes.kv_allocated, model.cache.bytes.kv_filled) == (held.kv_allocated, held.kv_filled)


def test_a_step_executes_the_ops_of_its_ledger(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every op by kind, with the rows and widths it ran at, as often as the ledger says."""
    seen: Counter[tuple[Any, ...]] = Counter()

    def watch(owner: Any, name: str, describe: Any) -> None:
        original = getattr(owner, name)

        def watched(*arguments: Any) -> Any:
            seen[describe(*arguments)] += 1
            return original(*arguments)

        monkeypatch.setattr(owner, name, watched)

    assert attention.ops is mlp.ops is decoder.ops is ops
    watch(Linear, "__call__", lambda own, x: ("linear", len(x), *own.weight.shape[::-1]))
    watch(ops, "embed", lambda ids, table: ("embedding", ids.numel(), 0, table.shape[1]))
    watch(ops, "rms_norm", lambda x, weight, eps: ("norm", x.numel() // x.shape[-1], 0, x.shape[-1]))
    watch(ops, "rotate_heads_", lambda x, cos, sin: ("rotary", x.shape[0] * x.shape[1], 0, x.shape[2] * x.shape[3]))
    for name in ("prefill_attention", "decode_attention"):
        watch(ops, name, lambda q, k, v: ("attention", q.shape[0] * q.shape[1], 0, q.shape[2] * q.shape[3]))
    watch(ops, "swiglu_", lambda x: ("elementwise", len(x), 0, x.shape[1] // 2))
    watch(ops, "add_residual_", lambda x, update: ("elementwise", len(x), 0, x.shape[1]))

    def expected(step: ledger.StepLedger) -> Counter[tuple[Any, ...]]:
        counts: Counter[tuple[Any, ...]] = Counter()
        for op in step.ops:
            counts[(op.kind, op.rows, op.k, op.n)] += op.count
        return counts

    model.prefill(prompt(2, 5))
    assert seen == expected(ledger.prefill(model.spec, 5, batch=2))
    seen.clear()
    model.decode(prompt(2, 1)[:, 0])
    assert seen == expected(ledger.decode(model.spec, 6, batch=2))
