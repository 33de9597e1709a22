"""The dry step is the model's own step, its laps are the ledger's ops, and its points reach the ceilings."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from lap_recorder import Recorder

from engine import kernels, ledger, spec
from engine.cache import KVCache
from engine.calibrate_model import for_model, layers_to_walk, weight_bytes
from engine.ceilings import BandwidthPoint, Ceilings
from engine.device import facts
from engine.dry_step import Case, ConstantTensors, DryModel
from engine.errors import LabError
from engine.laps import HostLaps, OpKey
from engine.ledger import Formats
from engine.measure import Stopped
from engine.model.decoder import Decoder
from engine.walks import cases

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 96,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "hidden_act": "silu",
}


@pytest.fixture(scope="module")
def tiny() -> spec.Spec:
    return spec.read(CONFIG)


@pytest.fixture(scope="module")
def general() -> Ceilings:
    """General ceilings as a measurement might give them: this test is about what is added to them."""
    points = [BandwidthPoint(working_set_bytes=2**20, bytes_per_s=2e10, spread=0.05)]
    return Ceilings(
        id="hand-written", measured_at="2026-01-01T00:00:00+00:00", device=facts("cpu"), bandwidth=points,
        peak_flops_per_s={"fp32": 1.0, "bf16": 7e15}, launch_ns=1000.0,
    )  # fmt: skip


@pytest.fixture(scope="module")
def told() -> list[float]:
    return []


@pytest.fixture(scope="module")
def measured(tiny: spec.Spec, general: Ceilings, told: list[float]) -> Ceilings:
    return for_model(general, tiny, "float32", rows=[1, 4, 8, 500], progress=lambda _, f: told.append(f), budget_s=1.0)


def priced_by(op: ledger.Op, batch: int) -> tuple[object, ...]:
    """What a ledger op is looked up by, written out a second time from the ledger's own documentation."""
    if op.kind == "linear":
        return ("linear", op.rows, op.k, op.n)
    if op.kind == "attention":
        return ("attention", op.rows, op.n, batch, op.context)
    return (op.name if op.kind == "elementwise" else op.kind, op.rows, op.n)


def walked_as(key: OpKey) -> tuple[object, ...]:
    if key.kind == "linear":
        return ("linear", key.rows, key.k, key.n)
    if key.kind == "attention":
        return ("attention", key.rows, key.width, key.batch, key.context)
    return (key.kind, key.rows, key.width)


@pytest.mark.parametrize(("batch", "tokens", "context"), [(1, 1, 9), (3, 1, 20), (1, 6, 6)])
def test_a_dry_step_walks_exactly_the_ledgers_ops(tiny: spec.Spec, batch: int, tokens: int, context: int) -> None:
    case, laps = Case(batch, tokens, context), Recorder()
    formats = Formats.dense("fp32")
    if tokens == 1:
        step = ledger.decode(tiny, context, batch=batch, formats=formats)
        counted = step.ops
    else:
        step = ledger.prefill(tiny, tokens, batch=batch, formats=formats)
        counted = tuple(op for op in step.ops if op.name not in ("final_norm", "lm_head"))
    with torch.inference_mode():
        model = DryModel(tiny, torch.float32, torch.device("cpu"), layers=3)
        model.step(case, laps, *model.cache_for(case), layers=3)
    expected: Counter[tuple[object, ...]] = Counter()
    for op in counted:
        expected[priced_by(op, batch)] += op.count
    assert Counter(walked_as(key) for key in laps.keys) == expected


@pytest.mark.parametrize("tokens", [1, 5])
def test_a_dry_step_computes_what_the_decoder_computes(tiny: spec.Spec, tokens: int) -> None:
    """With random weights in place of the constants, layer by layer, so that a missing op would show."""
    generator = torch.Generator().manual_seed(7)
    weights = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in tiny.tensors().items()}
    decoder = Decoder.from_tensors(tiny, weights)
    with torch.inference_mode():
        model = DryModel(tiny, torch.float32, torch.device("cpu"), layers=3, tensors=weights)
        case = Case(1, tokens, 5)
        cache, rotary = model.cache_for(case)
        # Different tokens before the one that is walked: over equal ones attention is uniform whatever the queries are.
        prompt = torch.tensor([[5, 17, 2, 40, 0]]) if tokens == 1 else torch.zeros(1, 5, dtype=torch.long)
        if tokens == 1:
            decoder.prefill(prompt[:, :4])
            fill(cache, decoder.cache)
        last = model.step(case, HostLaps(), cache, rotary, layers=3)[-1:]
        wanted = decoder.decode(prompt[0, -1:]) if tokens == 1 else decoder.prefill(prompt)
        logits = decoder._head(torch.nn.functional.rms_norm(last, (48,), decoder._norm, 1e-6))
    torch.testing.assert_close(logits, wanted)


def fill(cache: KVCache, source: KVCache) -> None:
    """Give a dry cache the positions a real prefill wrote."""
    cache.length = source.length = 0
    for mine, theirs in zip(cache.extend(4), source.extend(4), strict=True):
        mine.new.copy_(theirs.new)


def test_constant_weights_keep_every_activation_near_one(tiny: spec.Spec) -> None:
    decoder = Decoder.from_tensors(tiny, ConstantTensors(tiny.tensors()))
    logits = decoder.prefill(torch.zeros(1, 8, dtype=torch.long))
    assert logits.isfinite().all()
    assert 0.5 < logits.min() <= logits.max() < 2.0


def test_layers_take_turns_when_a_walk_takes_only_some(tiny: spec.Spec) -> None:
    model = DryModel(tiny, torch.float32, torch.device("cpu"), layers=3)
    assert [model._turn(2) for _ in range(3)] == [[0, 1], [2, 0], [1, 2]]


def test_points_cover_every_shape_at_the_rows_asked_for(tiny: spec.Spec, measured: Ceilings) -> None:
    found = {(p.rows, p.k, p.n) for p in measured.linear}
    shapes = {(48, 128), (64, 48), (48, 160), (80, 48)}  # qkv 4*16 + 2*2*16, o, gate and up 2*80, down
    assert {(rows, *shape) for rows in (1, 4, 8) for shape in shapes} <= found
    assert (1, 48, 96) in found  # the head
    assert not any(rows == 500 for rows, *_ in found), "500 tokens are beyond this model's 64 positions"
    assert all(p.dtype == "fp32" and p.time_ns > 0 and p.spread >= 0 for p in measured.linear + measured.small_ops)


def test_attention_is_measured_by_context_batch_and_prompt_length(measured: Ceilings) -> None:
    attention = {(p.batch, p.rows, p.context) for p in measured.small_ops if p.kind == "attention"}
    assert {(1, 1, 16), (1, 1, 64), (1, 4, 4), (1, 8, 8)} <= attention


def test_the_working_set_is_the_ledgers_weight_bytes(tiny: spec.Spec, measured: Ceilings) -> None:
    step = ledger.decode(tiny, 1, formats=Formats.dense("fp32"))
    (looked_up,) = (op for op in step.ops if op.kind == "embedding")
    assert weight_bytes(tiny, "fp32") == step.bytes.weights - looked_up.bytes.weights
    assert {p.working_set_bytes for p in measured.linear} == {weight_bytes(tiny, "fp32")}


def test_measuring_again_replaces_and_another_dtype_is_added(tiny: spec.Spec, measured: Ceilings) -> None:
    again = for_model(measured, tiny, "fp32", rows=[1], budget_s=1e-9)
    assert {p.rows for p in again.linear} < {p.rows for p in measured.linear} | {2, 16, 32}
    assert len(again.linear) == len({(p.rows, p.k, p.n) for p in again.linear})
    both = for_model(again, tiny, "bf16", rows=[1], budget_s=1e-9)
    assert {p.dtype for p in both.linear} == {"fp32", "bf16"}
    assert [p for p in both.linear if p.dtype == "fp32"] == again.linear


def test_a_product_that_beats_the_square_ones_raises_the_peak_and_only_that_one(measured: Ceilings) -> None:
    assert measured.peak_flops_per_s["fp32"] == max(p.flops_per_s for p in measured.linear) > 1.0
    assert measured.peak_flops_per_s["bf16"] == 7e15


@pytest.mark.skipif(not kernels.usable(), reason="weights in int8 need the compiled kernels (numba, a POSIX system)")
def test_matrices_in_another_format_have_a_peak_of_their_own(tiny: spec.Spec, general: Ceilings) -> None:
    packed = for_model(general, tiny, "fp32", rows=[1, 4], budget_s=1e-9, weights="int8")
    fastest = max(point.flops_per_s for point in packed.linear)
    assert {point.multiplication for point in packed.linear} == {"fp32 × int8"}
    assert packed.peak_flops_per_s == general.peak_flops_per_s | {"fp32 × int8": fastest}
    assert packed.peak("fp32") == 1.0
    assert packed.peak("fp32 × int8") == fastest > 1.0
    assert packed.peak("fp32 × int4") == 1.0
    faster = packed.model_copy(update={"peak_flops_per_s": {"fp32": 1e15, "fp32 × int8": 1e14}})
    assert faster.peak("fp32 × int8") == 1e15


def test_progress_and_stopping(tiny: spec.Spec, general: Ceilings, measured: Ceilings, told: list[float]) -> None:
    assert told[0] == 0.0
    assert told == sorted(told)
    assert told[-1] == 1.0
    asked = itertools.count()
    with pytest.raises(Stopped):
        for_model(general, tiny, "fp32", should_stop=lambda: next(asked) >= 3)
    assert next(asked) == 4


def test_cases_that_do_not_fit_the_context_or_the_memory_are_left_out(tiny: spec.Spec) -> None:
    everything = cases(tiny, [1, 2, 64, 128], kv_bytes_per_position=10, cache_bytes=10**9)
    assert {case.tokens for case in everything} == {1, 2, 64}
    assert max(case.context for case in everything) <= 64
    # 16 positions of decode and 2 of prefill need 180 bytes; the 64 would need 640 more.
    small = cases(tiny, [2, 64], kv_bytes_per_position=10, cache_bytes=200)
    assert small == [Case(1, 1, 16), Case(1, 2, 2)]
    assert cases(tiny, [2, 64], kv_bytes_per_position=10, cache_bytes=170) == [Case(1, 1, 16)]


def test_a_spent_budget_still_walks_the_plain_decode_steps(tiny: spec.Spec, general: Ceilings) -> None:
    hurried = for_model(general, tiny, "fp32", rows=[1, 4], budget_s=1e-9)
    assert {(p.batch, p.rows, p.context) for p in hurried.small_ops if p.kind == "attention"} >= {
        (1, 1, 16),
        (1, 1, 64),
    }
    assert {p.rows for p in hurried.linear} < {1, 4}


def test_a_walk_takes_as_many_layers_as_a_tenth_of_a_second_lets_pass(general: Ceilings) -> None:
    big = spec.read(CONFIG | {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36})
    # q 64 x 4096, k and v 32 x 4096, o 4096 x 64, gate, up and down 3 x 12288 x 4096: 151 781 376 numbers a layer
    # (and the two head norms of 16), 607 MB in fp32, 30 ms at 20 GB/s.
    fast = general.model_copy(update={"peak_flops_per_s": {"fp32": 1e12}})
    assert layers_to_walk(Case(1, 1, 16), fast, big, "fp32", held=36) == 3
    assert layers_to_walk(Case(1, 1, 16), fast, big, "fp32", held=2) == 2
    # 128 rows: 39 GFLOP a layer, 39 ms at 1 TFLOP/s; 1024 rows would need 311 ms.
    assert layers_to_walk(Case(1, 128, 128), fast, big, "fp32", held=36) == 2
    assert layers_to_walk(Case(1, 1024, 1024), fast, big, "fp32", held=36) == 1


def test_a_family_the_engine_does_not_run_is_refused(general: Ceilings) -> None:
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    bamba = {"model_type": "bamba", "vocab_size": 96, "mamba_n_heads": 6, "mamba_d_state": 8, **sizes}
    with pytest.raises(LabError, match="does not run"):
        for_model(general, spec.read(bamba), "fp32")
