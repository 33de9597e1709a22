"""The ledger's own rules on dense, windowed, mixture and latent models, by numbers worked out beside it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from engine import catalogue
from engine.errors import LabError
from engine.ledger import CONVENTIONS, ENGINE, LESSON, TRANSFORMERS, Formats, decode, explain, prefill, resident
from engine.spec import Experts

LLAMA = catalogue.load("meta-llama/Llama-3.1-8B")
TINY = catalogue.load("tiny-3.7m")
FP32 = Formats.dense("fp32")


def test_a_dense_decode_step_by_hand() -> None:
    """Llama-3.1-8B at 1000 positions, three sequences: every byte and FLOP from its config's numbers."""
    step = decode(LLAMA, 1000, batch=3)
    h, f, layers, heads, kv, d, vocab = 4096, 14336, 32, 32, 8, 128, 128256
    matrices = layers * (h * d * (heads + 2 * kv) + heads * d * h + 3 * h * f) + vocab * h
    norms = (2 * layers + 1) * h
    assert step.flops == 3 * (2 * matrices + layers * 4 * heads * d * 1000)
    assert step.bytes.as_dict() == {
        "weights": 2 * (matrices + norms + 3 * h),
        "kv_read": 3 * 999 * layers * 2 * kv * d * 2,
        "kv_write": 3 * layers * 2 * kv * d * 2,
        "state_read": 0,
        "state_write": 0,
        "conv_read": 0,
        "conv_write": 0,
        "logits": 3 * vocab * 4,
        "total": step.bytes.total,
    }
    assert step.working_set_bytes == step.bytes.total


def test_a_dense_prefill_by_hand() -> None:
    step = prefill(LLAMA, 100, batch=2)
    layer = 4096 * 128 * (32 + 16) + 4096 * 4096 + 3 * 4096 * 14336
    attention = 32 * 4 * 32 * 128 * (100 * 101 // 2)
    assert step.flops == 2 * (32 * 2 * layer * 100 + attention + 2 * 128256 * 4096)
    assert step.bytes.kv_read == 0
    assert step.bytes.kv_write == 2 * 100 * 131_072
    assert step.bytes.logits == 2 * 128256 * 4


def test_ops_are_what_the_engine_runs_in_its_order() -> None:
    step = decode(TINY, 10, batch=2, formats=FP32)
    shown = [(op.name, op.kind, op.count, op.rows, op.k, op.n) for op in step.ops]
    assert shown == [
        ("embedding", "embedding", 1, 2, 0, 256),
        ("input_norm", "norm", 6, 2, 0, 256),
        ("qkv_proj", "linear", 6, 2, 256, 512),
        ("rotary", "rotary", 6, 2, 0, 384),
        ("attention", "attention", 6, 2, 0, 256),
        ("o_proj", "linear", 6, 2, 256, 256),
        ("residual", "elementwise", 6, 2, 0, 256),
        ("post_attention_norm", "norm", 6, 2, 0, 256),
        ("gate_up_proj", "linear", 6, 2, 256, 1024),
        ("swiglu", "elementwise", 6, 2, 0, 512),
        ("down_proj", "linear", 6, 2, 512, 256),
        ("residual", "elementwise", 6, 2, 0, 256),
        ("final_norm", "norm", 1, 2, 0, 256),
        ("lm_head", "linear", 1, 2, 256, 512),
    ]
    assert [op.context for op in step.ops if op.kind == "attention"] == [10]
    assert sum(op.bytes.total for op in step.ops) == step.bytes.total


def test_a_tied_head_is_stored_once_and_read_once() -> None:
    held = resident(TINY, formats=FP32).weights
    assert held == 4 * TINY.parameters.trunk
    # All of it is read but the table's own look-up, which is the head; one row comes on top.
    assert decode(TINY, 2, formats=FP32).bytes.weights == held + 4 * 256
    untied = replace(TINY, tied=False)
    assert resident(untied, formats=FP32).weights == held + 4 * 512 * 256
    assert decode(untied, 2, formats=FP32).bytes.weights == held + 4 * 256


@pytest.mark.parametrize("model_id", [i for i in catalogue.ids() if not catalogue.load(i).parameters.experts])
def test_a_dense_step_reads_every_byte_it_holds_but_the_tables(model_id: str) -> None:
    """Biases, norms, convolutions and all; of embedding and position tables one row."""
    spec = catalogue.load(model_id)
    row = 2 * spec.hidden_size
    table = 0 if spec.tied else spec.vocab_size * row
    rows = row + (row if spec.positions else 0)
    assert decode(spec, 1).bytes.weights == resident(spec).weights - table - spec.positions * row + rows


def test_vision_and_mtp_are_resident_and_never_read() -> None:
    anchor = catalogue.load("Qwen/Qwen3.8-27B")
    text, whole = resident(anchor), resident(anchor, whole_checkpoint=True)
    assert whole.weights - text.weights == 2 * (460_730_096 + 424_699_392)
    assert whole.weights == 55_562_855_904
    read = decode(anchor, 1).bytes.weights
    assert read == text.weights - 2 * (248_320 - 1) * 5120


@pytest.mark.parametrize(("tokens", "pairs"), [(1, 1), (9, 45), (16, 136), (17, 152), (100, 16 * 100 - 120)])
def test_window_prefill_pairs_count_what_each_query_sees(tokens: int, pairs: int) -> None:
    """T(T+1)/2 up to the window, W T - W(W-1)/2 beyond; and by counting them one by one."""
    mistral = catalogue.load("mistralai/Mistral-7B-v0.1")
    attention = replace(mistral.layers[0].mixer, window=16)
    spec = replace(mistral, layers=(replace(mistral.layers[0], mixer=attention),))
    [op] = prefill(spec, tokens).of_kind("attention")
    assert pairs == sum(min(position + 1, 16) for position in range(tokens))
    assert op.flops == 4 * 32 * 128 * pairs


def test_a_window_reads_and_keeps_no_more_than_itself() -> None:
    mistral = catalogue.load("mistralai/Mistral-7B-v0.1")
    position = 131_072
    assert decode(mistral, 1000).bytes.kv_read == 999 * position
    # With the new token it sees 4096: it reads 4095 and writes one.
    assert decode(mistral, 30_000).bytes.kv_read == 4095 * position
    assert decode(mistral, 30_000, convention=LESSON).bytes.kv_read == 4096 * position
    assert resident(mistral, max_tokens=30_000).kv_allocated == 4096 * position
    assert prefill(mistral, 30_000).bytes.kv_write == 4096 * position


def test_windows_in_some_layers_make_a_bent_line() -> None:
    gemma = catalogue.load("google/gemma-3-27b-it")
    read = [decode(gemma, context).bytes.kv_read for context in (1024, 1025, 2049)]
    assert read[1] - read[0] == 81_920
    assert read[2] - read[1] == 1024 * 81_920
    assert read[0] == 1023 * (81_920 + 425_984)


@pytest.mark.parametrize(
    ("tokens", "distinct"), [(1, 8), (2, 15.5), (4, 29.1), (8, 51.6), (16, 82.4), (32, 111.8), (64, 125.9)]
)
def test_distinct_experts_are_those_a_simulation_touches(tokens: int, distinct: float) -> None:
    experts = catalogue.load("Qwen/Qwen3-30B-A3B").layers[0].feed_forward
    assert isinstance(experts, Experts)
    random = np.random.default_rng(0)
    touched = [len({int(e) for _ in range(tokens) for e in random.choice(128, 8, replace=False)}) for _ in range(300)]
    expected = experts.expected_distinct(tokens)
    assert round(expected, 1) == distinct
    assert expected == pytest.approx(np.mean(touched), rel=0.02)


def test_expert_bytes_grow_with_the_batch_and_flops_with_the_tokens() -> None:
    spec = catalogue.load("Qwen/Qwen3-30B-A3B")

    def experts(batch: int) -> float:
        return sum(op.bytes.weights for op in decode(spec, 100, batch=batch).ops if op.name.startswith("experts_"))

    assert [round(experts(batch) / 1e9, 1) for batch in (1, 16, 64)] == [3.6, 37.3, 57.0]
    assert decode(spec, 100, batch=16).flops == 16 * decode(spec, 100).flops


def test_latent_attention_in_its_three_forms() -> None:
    """DeepSeek-V3 at c = 2: 1,152 B a token and layer and intensity 241.8 absorbed; 81,920 B and 1 expanded."""
    spec = catalogue.load("deepseek-ai/DeepSeek-V3")
    context = 4096

    def attention(latent: str) -> tuple[int, int]:
        step = decode(spec, context, convention=replace(ENGINE, latent=latent))
        found = step.of_kind("attention")
        return sum(op.flops for op in found), sum(op.bytes.kv_read + op.bytes.kv_write for op in found)

    flops, moved = attention("absorbed")
    assert moved == context * 61 * 1152 == context * 70_272
    assert flops == 61 * 2 * 128 * context * (2 * 512 + 64)
    assert round(flops / moved, 1) == 241.8
    flops, moved = attention("expanded")
    assert moved == context * 61 * 81_920
    assert flops == 61 * 2 * 128 * context * (128 + 64 + 128)
    assert flops / moved == 1
    again = decode(spec, context, convention=replace(ENGINE, latent="re-expanded"))
    once = decode(spec, context)
    [expand] = {op.rows for op in again.ops if op.name == "kv_b_proj"}
    assert expand == context
    per_token = 61 * 2 * 512 * 128 * 256
    assert sum(op.flops for op in again.ops if op.name == "kv_b_proj") == context * per_token
    assert sum(op.flops for op in once.ops if op.name == "kv_b_proj") == per_token
    # Keys and values of all positions are written out and read back, on top of the latent cache.
    assert (
        again.bytes.kv_read - once.bytes.kv_read == again.bytes.kv_write - once.bytes.kv_write == context * 61 * 81_920
    )


def test_kimi_k2_has_half_the_heads_and_half_the_intensity() -> None:
    step = decode(catalogue.load("moonshotai/Kimi-K2-Instruct"), 4096)
    [found] = {round(op.flops / (op.bytes.kv_read + op.bytes.kv_write), 1) for op in step.of_kind("attention")}
    assert found == 120.9


def test_switches_change_what_they_name() -> None:
    def differs(**switches: object) -> set[str]:
        other = prefill(LLAMA, 64, convention=replace(ENGINE, **switches))  # type: ignore[arg-type]
        ours = prefill(LLAMA, 64).bytes.as_dict() | {"flops": prefill(LLAMA, 64).flops}
        theirs = other.bytes.as_dict() | {"flops": other.flops}
        return {name for name in ours if ours[name] != theirs[name] and name != "total"}

    assert differs(head="all") == {"flops", "logits"}
    assert differs(pairs="square") == {"flops"}
    assert differs(logits=False) == {"logits"}
    assert differs(hidden_norms=False) == {"weights"}
    assert differs(embedding_rows=False) == {"weights"}


def test_a_grid_is_counted_as_its_points_are() -> None:
    contexts, batches = np.array([[1.0, 700.0, 5000.0]]), np.array([[1.0], [7.0]])
    for model_id in ("google/gemma-3-1b-it", "openai/gpt-oss-20b", "Qwen/Qwen3.5-35B-A3B", "deepseek-ai/DeepSeek-V3"):
        spec = catalogue.load(model_id)
        for convention in (LESSON, ENGINE, TRANSFORMERS):
            grid = decode(spec, contexts, batch=batches, convention=convention)
            for row, batch in enumerate((1, 7)):
                for column, context in enumerate((1, 700, 5000)):
                    point = decode(spec, context, batch=batch, convention=convention)
                    assert np.broadcast_to(grid.flops, (2, 3))[row, column] == point.flops
                    assert np.broadcast_to(grid.bytes.total, (2, 3))[row, column] == point.bytes.total


@pytest.mark.parametrize("model_id", catalogue.ids())
@pytest.mark.parametrize("convention", ["lesson", "engine", "transformers"])
def test_every_model_of_the_catalogue_is_counted(model_id: str, convention: str) -> None:
    spec = catalogue.load(model_id)
    for step in (prefill(spec, 33, convention=convention), decode(spec, 33, batch=2, convention=convention)):
        assert step.flops > 0
        assert all(isinstance(amount, int) and amount >= 0 for amount in step.bytes.as_dict().values())
        assert step.bytes.weights <= resident(spec).weights + 2 * 33 * spec.hidden_size * 2


@pytest.mark.parametrize(("tokens", "batch"), [(0, 1), (1, 0), (-3, 1)])
def test_steps_of_nothing_are_refused(tokens: int, batch: int) -> None:
    with pytest.raises(LabError, match="has to be at least 1"):
        prefill(TINY, tokens, batch=batch)
    with pytest.raises(LabError, match="has to be at least 1"):
        decode(TINY, tokens, batch=batch)


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(LabError, match="no convention folklore; known are lesson, engine, transformers"):
        decode(TINY, 5, convention="folklore")


@pytest.mark.parametrize("name", CONVENTIONS)
def test_every_convention_says_in_a_sentence_what_it_counts(name: str) -> None:
    said = str(explain(name))
    assert said.endswith(".")
    assert "{" not in said


def test_none_of_it_imports_torch() -> None:
    modules = "engine.spec, engine.ledger, engine.roofline, engine.predict, engine.parallel, engine.catalogue"
    code = f"import sys, {modules}; engine.predict.predict('tiny-3.7m', 'h100-sxm'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
