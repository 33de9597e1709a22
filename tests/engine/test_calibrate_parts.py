"""Layers of every kind are walked as the ledger counts them, and their times add up to the expected line."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from family_helpers import CONFIGS, config_of, reference
from lap_recorder import Recorder

from engine import ledger, spec
from engine.calibrate_model import for_model
from engine.calibrate_parts import _cases
from engine.ceilings import BandwidthPoint, Ceilings, SmallOpPoint
from engine.device import facts
from engine.dry_parts import DryParts, counted, op_key, shelves
from engine.dry_step import Case
from engine.expected import predictor
from engine.laps import OpKey
from engine.ledger import Formats
from engine.model.supported import is_plain
from engine.points import COVERS, Points

CPU = torch.device("cpu")


def spec_of(kind: str) -> spec.Spec:
    return spec.read(config_of(reference(kind)))


def general() -> Ceilings:
    """General ceilings as a measurement might give them."""
    points = [BandwidthPoint(working_set_bytes=2**20, bytes_per_s=2e10, spread=0.05)]
    return Ceilings(
        id="hand-written", measured_at="2026-01-01T00:00:00+00:00", device=facts("cpu"), bandwidth=points,
        peak_flops_per_s={"fp32": 1e11}, launch_ns=1000.0,
    )  # fmt: skip


def expected_laps(model: spec.Spec, case: Case) -> Counter[OpKey]:
    """The ledger's ops that are no part of another's lap, as often as the ledger has them."""
    covered = {name for names in COVERS.values() for name in names}
    latent = any(isinstance(layer.mixer, spec.LatentAttention) for layer in model.layers)
    found: Counter[OpKey] = Counter()
    for op in counted(model, case).ops:
        if op.name in covered or (case.tokens > 1 and op.name in ("final_norm", "lm_head")):
            continue
        form = "absorbed" if op.kind == "attention" and latent and case.tokens == 1 else ""
        found[op_key(op, case, form)] += op.count
    return found


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("case", [Case(1, 1, 9), Case(3, 1, 20), Case(1, 6, 6)], ids=["decode", "batch", "prefill"])
def test_a_walk_over_every_layer_laps_exactly_the_ledgers_ops(kind: str, case: Case) -> None:
    model, laps = spec_of(kind), Recorder()
    assert not is_plain(model)
    with torch.inference_mode():
        dry = DryParts(model, torch.float32, CPU, head=True)
        dry.step(case, laps, *dry.cache_for(case), layers=model.num_layers)
    assert Counter(laps.keys) == expected_laps(model, case)


def test_every_covered_name_is_an_op_of_some_ledger() -> None:
    names = {op.name for kind in CONFIGS for op in ledger.decode(spec_of(kind), 9).ops}
    assert {name for group in COVERS.values() for name in group} <= names


def test_the_experts_dealt_are_as_many_as_uniform_routing_hits() -> None:
    model = spec_of("qwen3-moe")
    part = model.layers[0].feed_forward
    assert isinstance(part, spec.Experts)
    case = Case(1, 5, 5)
    (op,) = (
        op for op in counted(replace(model, layers=model.layers[:1]), case).ops if op.name == "experts_gate_up_proj"
    )
    # 8 experts, 3 a token: five tokens are expected to touch 8 (1 - (5/8)^5) = 7.24 of them, by 15 choices.
    assert (op_key(op, case).distinct, op.rows) == (7, 15)
    dry = DryParts(model, torch.float32, CPU, head=False)
    laps = Recorder()
    with torch.inference_mode():
        dry.step(case, laps, *dry.cache_for(case), layers=1)
    dealt = dry._layers[0][0].dealt
    assert dealt is not None
    chosen, _ = dealt(torch.randn(5, model.hidden_size))
    assert len(chosen.unique()) == 7
    assert all(len(row.unique()) == 3 for row in chosen)


@pytest.mark.parametrize("kind", ["qwen3-next", "gpt-oss", "nemotron-h", "kimi-linear"])
def test_what_was_measured_prices_every_op_of_a_step(kind: str) -> None:
    """Nothing falls back to a roof and a launch, and no line lies below the one under it."""
    model = spec_of(kind)
    measured = for_model(general(), model, "fp32", rows=[1, 2, 4], budget_s=1.6)
    lines = predictor(model, measured, None, Formats.dense("fp32"))
    for prediction in (lines.decode(9), lines.prefill(3)):
        step, predicted = prediction.ledger, prediction.predicted_ns
        assert predicted.expected > predicted.measured_roof
        points = Points(measured, "fp32", step.bytes.weights)
        ops = [op for op in step.ops if op.name not in points.covered]
        assert all(points.op_ns(op, step) for op in ops), [op.name for op in ops]


def test_a_large_model_is_held_a_shelf_at_a_time() -> None:
    model = spec.read(
        {"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96, "moe_intermediate_size": 32, "num_experts": 16,
         "num_experts_per_tok": 2, "intermediate_size": 128, "mlp_only_layers": [0], "decoder_sparse_step": 1}
    )  # fmt: skip
    sizes = [sum(w.parameters for w in model.layer_weights(layer)) * 4 for layer, _ in model.groups]
    assert shelves(model, 4, 10**9) == [model]
    (both,) = shelves(model, 4, sum(sizes))
    assert both.layers == tuple(layer for layer, _ in model.groups)
    apart = shelves(model, 4, max(sizes))
    assert [shelf.num_layers for shelf in apart] == [1, 1]
    # Half the room for the experts: as many as fit, and never fewer than a token chooses.
    (_, fewer) = shelves(model, 4, max(sizes) // 2)
    part = fewer.layers[0].feed_forward
    assert isinstance(part, spec.Experts)
    assert 2 <= part.experts < 16
    assert sum(w.parameters for w in fewer.layer_weights(fewer.layers[0])) * 4 <= max(sizes) // 2


def test_middling_prompts_are_walked_before_the_extremes() -> None:
    rows = [2**power for power in range(8)]
    wanted = _cases(spec_of("qwen3-next"), general(), "fp32", CPU, rows, budget_s=1.0)
    kinds = ["one" if case.rows == 1 else "prompt" if case.tokens > 1 else "batch" for case in wanted]
    assert kinds == sorted(kinds, key=["one", "prompt", "batch"].index)
    assert [case.tokens for case in wanted if case.tokens > 1] == [32, 16, 64, 8, 128, 4, 2]


def point(kind: str, rows: int, time_ns: float, **more: int) -> SmallOpPoint:
    return SmallOpPoint(kind=kind, width=8, dtype="fp32", rows=rows, time_ns=time_ns, spread=0, **more)


def points(*found: SmallOpPoint) -> Points:
    return Points(general().model_copy(update={"small_ops": list(found)}), "fp32", 1)


def test_experts_cost_what_each_costs_with_its_share_of_the_rows() -> None:
    known = points(point("experts", 8, 800.0, distinct=8), point("experts", 64, 3200.0, distinct=16))
    assert known.experts_ns(8, 8) == pytest.approx(800.0)
    assert known.experts_ns(64, 16) == pytest.approx(3200.0)
    assert known.experts_ns(16, 16) == pytest.approx(1600.0), "one row each, twice as many of them"
    assert known.experts_ns(32, 8) == pytest.approx(1600.0), "four rows each"
    assert points().experts_ns(8, 8) is None


def test_a_recurrence_is_priced_by_sequences_in_decode_and_by_tokens_in_a_prompt() -> None:
    known = points(
        point("recurrence", 1, 10.0, batch=1),
        point("recurrence", 4, 30.0, batch=4),
        point("recurrence", 4, 90.0, batch=1),
    )
    assert known.recurrent_ns("recurrence", 8, batch=4, tokens=1) == pytest.approx(30.0)
    assert known.recurrent_ns("recurrence", 8, batch=1, tokens=4) == pytest.approx(90.0)
    assert known.recurrent_ns("recurrence", 8, batch=2, tokens=8) == pytest.approx(360.0)
    assert known.recurrent_ns("conv", 8, batch=1, tokens=1) is None


def test_a_windows_prompt_grows_as_its_length_and_a_full_one_as_its_square() -> None:
    known = points(
        point("attention", 4, 10.0, batch=1, context=4),
        point("attention", 16, 100.0, batch=1, context=16),
        point("attention", 16, 60.0, batch=1, context=8),
    )
    assert known.prefill_attention_ns(1, 16, 16) == pytest.approx(100.0)
    assert known.prefill_attention_ns(1, 16, 8) == pytest.approx(60.0)
    assert known.prefill_attention_ns(1, 4, 4) == pytest.approx(10.0)
    assert known.prefill_attention_ns(1, 32, 8) == pytest.approx(120.0)
    assert known.prefill_attention_ns(1, 32, 32) == pytest.approx(400.0)


def test_copies_of_one_prompt_choose_the_same_experts() -> None:
    model = spec_of("qwen3-moe")

    def distinct(step: ledger.StepLedger) -> set[float]:
        return {op.distinct for op in step.ops if op.distinct}

    assert distinct(ledger.decode(model, 9, batch=4, alike=True)) == {3.0}
    assert distinct(ledger.decode(model, 9, batch=4)) == {8 * (1 - (5 / 8) ** 4)}
    assert distinct(ledger.prefill(model, 2, batch=4, alike=True)) == {8 * (1 - (5 / 8) ** 2)}
