"""What tools of this kind get wrong, seeded here one fault at a time, and the test that catches each.

FAULTS is the table: where the fault comes from (a number of the list the project keeps, or the tool it was read in),
what is wrong, the formula and its wrong form, and the test that fails because of it. A fault that no test catches fails
this file; so does a formula that has changed since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import test_golden as golden
import test_ledger as ledger
import test_ledger_formats as formats
import test_ledger_recurrence as recurrence
import test_ledger_transformers as real
import test_roofline as roofs
import test_spec_catalogue as catalogue
import test_spec_input as configs
from seeded import seeded


@dataclass(frozen=True)
class Fault:
    source: str
    what: str
    module: str
    right: str
    wrong: str
    caught_by: Callable[[], None]


def caught(test: Callable[..., None], *case: object) -> Callable[[], None]:
    return partial(test, *case)


def cache_of(family: str) -> Callable[[], None]:
    return caught(real.test_cache_bytes_are_those_of_the_real_cache, family, 1, 24)


def decode_of(family: str) -> Callable[[], None]:
    return caught(real.test_decode_flops_are_what_torch_counts, family, 1, 24)


def prefill_of(family: str) -> Callable[[], None]:
    return caught(real.test_prefill_flops_are_what_torch_counts, family, 1, 24)


def printed(row: str) -> Callable[[], None]:
    return caught(golden.test_the_lesson_s_number, row)


MIXING, WRITER, RESIDENT, OPS = (f"engine.ledger.{name}" for name in ("mixing", "writer", "resident", "ops"))
STEP, FEEDING, FORMATS, PLAN = "engine.ledger", "engine.ledger.feeding", "engine.ledger.formats", "engine.ledger.plan"
SPEC, COMMON, PARTS, DELTA = (f"engine.spec.{name}" for name in ("types", "common", "parts", "recurrent"))
by_hand = ledger.test_a_dense_decode_step_by_hand

FAULTS = [
    # --- the numbered list
    Fault(
        "1", "cache sized with query heads", RESIDENT,
        "kv_bytes(mixer.kv_heads, mixer.head_dim)", "kv_bytes(mixer.heads, mixer.head_dim)", cache_of("qwen3"),
    ),
    Fault(
        "1", "cache read with query heads", MIXING,
        "kv_bytes(mixer.kv_heads, mixer.head_dim)", "kv_bytes(mixer.heads, mixer.head_dim)", by_hand,
    ),
    Fault(
        "3", "every layer of a hybrid holds KV", "engine.spec.hybrids",
        "full if name == ATTENTION else delta", "full", cache_of("qwen3_5"),
    ),
    Fault("4", "state left out of what a request takes", RESIDENT,
          "self.kv_allocated + self.state + self.conv", "self.kv_allocated", printed("max_batch_4096")),
    Fault("4", "state stored at the model's width", FORMATS,
          "return PLAIN_BYTES[self.state]", "return 2", printed("gdn_state")),
    Fault("4", "state sized with key heads", DELTA,
          "return self.value_heads * self.key_dim * self.value_dim",
          "return self.key_heads * self.key_dim * self.value_dim", cache_of("qwen3_next")),
    Fault("4", "state read but not written", MIXING,
          "state_read=reads * state, state_write=state", "state_read=reads * state", printed("gdn_traffic")),
    Fault("5", "window layers dropped", RESIDENT,
          "tokens = least(tokens, mixer.window if", "tokens = 0 * least(tokens, mixer.window if", cache_of("gpt_oss")),
    Fault("5", "window layers allocated without end", RESIDENT,
          "if mixer.window is not None:", "if False:", ledger.test_a_window_reads_and_keeps_no_more_than_itself),
    Fault("5", "window layers read without end", MIXING,
          "return least(step.cached, window - 1 if step.convention.attends_new else window)", "return step.cached",
          ledger.test_a_window_reads_and_keeps_no_more_than_itself),
    Fault("5", "prefill of window layers left quadratic", MIXING,
          "window is None:\n        return tokens * (tokens + own)", "True:\n        return tokens * (tokens + own)",
          caught(ledger.test_window_prefill_pairs_count_what_each_query_sees, 100, 1480)),
    Fault("6", "all experts multiplied instead of those routed to", WRITER,
          "rows = self.step.rows * top_k", "rows = self.step.rows * found.copies", decode_of("qwen3_moe")),
    Fault("6", "all experts read instead of those touched", FEEDING,
          "part.expected_distinct(writer.step.choices)", "part.experts",
          ledger.test_expert_bytes_grow_with_the_batch_and_flops_with_the_tokens),
    Fault("7", "only the active experts read, whatever the batch", FEEDING,
          "part.expected_distinct(writer.step.choices)", "part.top_k",
          ledger.test_expert_bytes_grow_with_the_batch_and_flops_with_the_tokens),
    Fault("8", "embedding counted as a product", SPEC,
          "matmul_all = trunk - tables - norms", "matmul_all = trunk - norms", printed("matmul_params")),
    Fault("8", "tied head dropped", SPEC,
          "+ (self.head.parameters if self.tied else 0)", "",
          caught(golden.test_a_token_reads_what_it_multiplies, "Qwen/Qwen3-0.6B")),
    Fault("8", "tied head not read", PLAN,
          "(spec.head,) if spec.tied else ()", "()", ledger.test_a_tied_head_is_stored_once_and_read_once),
    Fault("9", "whole embedding table read", STEP,
          "Traffic(weights=rows * per_token)", "Traffic(weights=table.matrix_bytes)",
          ledger.test_vision_and_mtp_are_resident_and_never_read),
    Fault("9", "vision tower and MTP layer not resident", RESIDENT,
          "if whole_checkpoint:", "if False:", printed("max_batch_4096")),
    Fault("11", "roof of another card", "engine.predict",
          "Roof(peak, device.bandwidth_bytes_per_s)", "Roof(peak, 3.35e12)", printed("h200_over_h100")),
    Fault("12", "sparse peak taken for dense", "engine.hardware_device",
          "return peak.dense_flops_per_s if peak else None",
          "return (peak.sparse_flops_per_s or peak.dense_flops_per_s) if peak else None", printed("ridge_h100")),
    Fault("13", "memory in GiB", "engine.predict",
          "else device.memory_bytes\n", "else device.memory_bytes * 1.073741824\n", printed("max_batch_4096")),
    Fault("13", "bandwidth in GiB/s", "engine.predict",
          "Roof(peak, device.bandwidth_bytes_per_s)", "Roof(peak, device.bandwidth_bytes_per_s * 1.073741824)",
          printed("h100_step")),
    Fault("14", "peak of the storage format instead of the multiplied dtype", "engine.predict",
          "FALLBACKS[wanted]", "(formats.weights, *FALLBACKS[wanted])",
          roofs.test_weight_only_formats_are_timed_against_the_dtype_they_are_multiplied_in),
    Fault("15", "KV left out of a decode step's bytes", OPS,
          "moved = self.kv_read + self.kv_write +", "moved = ", printed("request_bytes_4096")),
    Fault("16", "latent cache counted twice", MIXING,
          "return formats.kv_bytes(1, mixer.rank) + formats.kv_bytes(1, mixer.rope_dim)",
          "return 2 * formats.kv_bytes(1, mixer.rank) + formats.kv_bytes(1, mixer.rope_dim)", cache_of("deepseek_v3")),
    Fault("16", "rotary part of the latent cache dropped", MIXING,
          "return formats.kv_bytes(1, mixer.rank) + formats.kv_bytes(1, mixer.rope_dim)",
          "return formats.kv_bytes(1, mixer.rank)", cache_of("deepseek_v3")),
    Fault("16", "latent cache spelled out for every head", MIXING,
          'if step.convention.latent != "expanded":', "if False:",
          ledger.test_latent_attention_in_its_three_forms),
    Fault("16", "absorbed bytes beside expanded FLOPs", MIXING,
          'absorbed = form == "absorbed"', 'absorbed = form == "never"',
          ledger.test_latent_attention_in_its_three_forms),
    Fault("17", "attention FLOPs doubled", MIXING,
          "flops=2 * inner * double_pairs", "flops=4 * inner * double_pairs", decode_of("llama")),
    Fault("17", "causal prompt counted as a square", MIXING,
          'if how == "square":', "if True:", printed("prefill_2048")),
    Fault("18", "head size taken as hidden size over heads", COMMON,
          'if config.has("head_dim"):', "if False:", cache_of("qwen3")),
    Fault("19", "cache guessed from the parameter count", RESIDENT,
          "return 2 * step.formats.kv_bytes(mixer.kv_heads, mixer.head_dim) * tokens",
          "return int(0.000008 * step.formats.kv_bytes(mixer.heads, mixer.head_dim) ** 2 * tokens)", cache_of("llama")),
    # --- read in other tools
    Fault("LLM-Viewer", "half of the head's FLOPs", STEP,
          '"lm_head", positions, logits=logits', '"lm_head", positions / 2, logits=logits',
          decode_of("llama")),
    Fault("LLM-Viewer", "logits without the batch", STEP,
          "LOGIT_BYTES * spec.vocab_size * positions", "LOGIT_BYTES * spec.vocab_size", by_hand),
    Fault("LLM-Viewer", "memory without head and embedding", PLAN,
          "for weight in spec.outer_weights)", "for weight in spec.outer_weights[1:-1])",
          caught(real.test_resident_weights_are_the_bytes_of_the_real_tensors, "mistral")),
    Fault("GenZ", "head at every prompt position although one is asked for", STEP,
          'if step.convention.head == "all" else step.batch', "if True else step.batch",
          ledger.test_a_dense_prefill_by_hand),
    Fault("llm-analysis", "the whole cache written again each step", MIXING,
          "return 1 if step.convention.decode_kv_write else 0", "return step.context", by_hand),
    Fault("llm-analysis", "decode attends one position", MIXING,
          "seen = step.context if step.convention.attends_new else step.cached", "seen = 1", decode_of("llama")),
    Fault("gpu_poor", "half of a cache forgotten (K without V)", MIXING,
          "position = 2 * step.formats", "position = step.formats", printed("kv_per_token")),
    Fault("gpu_poor", "the vector unit's rate taken for the matrices'", "engine.predict",
          "peak = device.peak_flops_per_s(dtype)", 'peak = device.peak_flops_per_s("fp32")',
          printed("flops_only_rate")),
    Fault("pochenai", "linear layers move no bytes", WRITER,
          "Traffic(weights=found.bytes * self.count, logits=logits)", "Traffic(logits=logits)", by_hand),
    Fault("pochenai", "decode without a compute term", "engine.roofline",
          "return max(compute_ns(step, roof), memory_ns(step, roof))", "return memory_ns(step, roof)",
          printed("prefill_2048")),
    Fault("gpt-fast", "every expert read at every batch", "engine.spec.experts",
          "return self.experts * (1 - untouched)", "return self.experts",
          caught(ledger.test_distinct_experts_are_those_a_simulation_touches, 8, 51.6)),
    # --- mistakes the accounting rules warn of
    Fault("accounting", "no diagonal in causal pairs", MIXING,
          'own = 1 if how == "causal" else 0', "own = 0", ledger.test_a_dense_prefill_by_hand),
    Fault("accounting", "biases forgotten", PARTS,
          "if self.qkv_bias:", "if False:", caught(real.test_parameters_are_those_of_the_model, "qwen2")),
    Fault("accounting", "window of a config used although it is switched off", "engine.spec.dense",
          'if not config.flag("use_sliding_window", default=True) or not config.has("sliding_window"):',
          'if not config.has("sliding_window"):', configs.test_a_sliding_window_that_is_switched_off_is_ignored),
    Fault("accounting", "Kimi's layer numbers read from zero", "engine.spec.hybrids",
          "return {index - 1 for index in listed}", "return set(listed)",
          configs.test_kimi_s_layer_numbers_start_at_one),
    Fault("accounting", "scales of quantised weights forgotten", FORMATS,
          "tiles * self.tile_bytes", "0", caught(formats.test_bits_a_weight_with_scales, "fp8")),
    Fault("accounting", "head and embedding quantised with the rest", FORMATS,
          "WEIGHT_LAYOUTS[self.embedding or self.plain_format]", "WEIGHT_LAYOUTS[self.weights]",
          formats.test_weight_formats_leave_embedding_head_norms_and_vectors_alone),
    Fault("accounting", "a checkpoint's own format put on all its matrices", FORMATS,
          "return own.roles if own and own.format == self.weights else MATRICES", "return MATRICES",
          caught(catalogue.test_quantised_checkpoints_take_the_published_bytes, "openai/gpt-oss-20b", 13_761_264_768)),
    Fault("accounting", "state size counted per token", RESIDENT,
          "state = state + many * mixer.state_size", "state = state + many * max_tokens * mixer.state_size",
          recurrence.test_llama_cpp_s_own_log_for_the_anchor),
    Fault("accounting", "the decay of the state forgotten", DELTA,
          "return 7 * self.state_size", "return 6 * self.state_size", recurrence.test_gated_delta_net),
    Fault("accounting", "B and C of Mamba2 kept for every head", DELTA,
          "self.inner + 2 * self.groups * self.state", "self.inner + 2 * self.heads * self.state",
          cache_of("nemotron_h")),
    Fault("accounting", "all conv columns kept where one less suffices", "engine.ledger.convention",
          '"K-1": kernel - 1', '"K-1": kernel', recurrence.test_llama_cpp_s_own_log_for_the_anchor),
]  # fmt: skip

# Numbers of the list that are no formula of a ledger, and where the project answers them instead.
ANSWERED_ELSEWHERE = {
    "2": "estimates without calibration: the expected line is measured on this machine and compared with every run",
    "10": "a datasheet's ceiling is not the reachable one: calibration measures it, and the page shows both",
}


def test_every_number_of_the_list_is_answered() -> None:
    assert {fault.source for fault in FAULTS} | ANSWERED_ELSEWHERE.keys() >= {str(n) for n in range(1, 20)}


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{fault.source}: {fault.what}" for fault in FAULTS])
def test_the_fault_is_caught(fault: Fault) -> None:
    """Without the fault the same test passes: it runs in its own file."""
    with seeded(fault.module, fault.right, fault.wrong), pytest.raises(AssertionError):
        fault.caught_by()
