"""The lesson's figures, each computed: one checkpoint, one card, a prompt of four tokens, and what follows from them.

Every figure has a name and is a call of the prediction under the lesson's convention, or a ratio of two. Pages and
documents quote a figure by its name and never type one. Knows no torch and measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from engine import catalogue, hardware
from engine.ledger import Formats, decode
from engine.predict import predict, roof_of
from engine.ridge import rows_at_ridge
from engine.spec import Attention
from engine.spec.experts import Experts

ANCHOR = "Qwen/Qwen3.8-27B"
OTHER = "Qwen/Qwen3-32B"
MIXTURE = "deepseek-ai/DeepSeek-V3"
H100, A100, H200, H800 = "h100-sxm", "a100-sxm4-80gb", "h200-sxm", "h800-sxm"
SENTENCE = "小明把苹果给了"
PROMPT = 4
LONG = 2048
CONTEXT = 4096
CROWD = 58
PAPER = (10, 5)
"""Prompt and output tokens of the pen-and-paper task."""
EXPERT_TOKENS = 256
"""Tokens an expert sees at most in a decode step, as DeepSeek-V3's report (section 3.4) says of its deployment."""
ANSWERS = (5, 20, 50, 100)
"""Lengths of four answers, an example of how unequal they are."""
PREFILL_GPUS, DECODE_GPUS = 32, 320
"""The smallest units of that deployment, by the same section: 4 nodes for prefill, 40 for decode."""


@cache
def case(model: str = ANCHOR, device: str = H100, **asked: Any) -> dict[str, Any]:
    """The prediction under the lesson's convention; kept, so do not write into it.

    Raises:
        LabError: what `predict` refuses.
    """
    return predict(model, device, preset="lesson", **asked)


def weights_alone(device: str = H100, model: str = ANCHOR) -> dict[str, float]:
    """A decode step of which only the weights count: its two times and its intensity."""
    found: dict[str, float] = case(model, device)["decode"]["weights_only"]
    return found


def own_bytes(context: int = CONTEXT, model: str = ANCHOR) -> int:
    """Bytes one sequence of `context` cached positions moves in a step, beside the weights."""
    moved = case(model, context=context)["decode"]["bytes"]
    return int(moved["total"] - moved["weights"])


def held_bytes(context: int = CONTEXT, model: str = ANCHOR) -> int:
    """Bytes of memory one sequence of `context` positions takes, beside the weights: a state counts once."""
    return int(case(model, context=context)["capacity"]["per_request_bytes"])


def kv_bytes_per_token(model: str = ANCHOR) -> float:
    """Bytes of KV cache for each token of context."""
    step = case(model)["decode"]
    return float(step["bytes"]["kv_read"] / step["context"])


def prefill_token_s() -> float:
    """Seconds of the long prefill for each of its tokens."""
    return float(case(prompt_tokens=LONG)["prefill"]["time_s"] / LONG)


def passes(prompt: int, output: int, *, first_token_from_prefill: bool) -> int:
    """Forward passes for an answer of `output` tokens: one for the prompt, then one for each token.

    The last row of the prefill already scores the first new token; an engine that picks it there needs one pass less.
    """
    return 1 + output - (1 if first_token_from_prefill else 0) if prompt and output else min(prompt, 1)


def token_passes(prompt: int, output: int, *, cache: bool) -> int:
    """Tokens that go through the model in all, until `output` tokens are written.

    With a cache each token goes through once, and the last one written not at all; without, everything so far goes
    through again for each new token.
    """
    if cache:
        return prompt + output - 1
    return sum(prompt + written for written in range(output))


def ffn_matrix() -> tuple[int, int]:
    """The anchor's d x f: the matrix W_up of a feed-forward block, inputs x outputs."""
    [(k, n)] = {(op.k, op.n) for op in decode(catalogue.load(ANCHOR), 2).ops if op.name == "gate_up_proj"}
    return int(k), int(n) // 2


def matrix_ratio(rows: int, device: str = H100) -> float:
    """Time of one matrix multiplication with `rows` rows over that with one row, at the roof, in bf16."""
    roof, _ = roof_of(hardware.load(device), Formats())
    k, n = ffn_matrix()
    return roof.least_ns(2 * rows * k * n, 2 * k * n) / roof.least_ns(2 * k * n, 2 * k * n)


def expert_ridge_rows() -> float:
    """Rows at which one expert's FP8 matrices turn from bytes to arithmetic on an H800 SXM."""
    device = hardware.load(H800)
    peak = device.peak_flops_per_s("fp8")
    assert peak is not None  # the card's file lists one
    return rows_at_ridge(peak, device.bandwidth_bytes_per_s, 1.0)


def static_batch_use(lengths: tuple[int, ...] = ANSWERS) -> float:
    """Share of a batch's places in use, if nobody may join before its longest answer has ended."""
    return sum(lengths) / (len(lengths) * max(lengths))


def draft_share() -> float:
    """Parameters of the anchor's own draft layer (multi-token prediction) over those a token is multiplied with."""
    [layer] = [extra for extra in catalogue.load(ANCHOR).extras if extra.name == "multi-token prediction"]
    return layer.parameters / float(case()["params"]["matmul"])


def tokens_in_flight() -> float:
    """Tokens one step needs so that each expert of the mixture sees EXPERT_TOKENS of them."""
    parts = {layer.feed_forward for layer, _ in catalogue.load(MIXTURE).groups}
    [experts] = [part for part in parts if isinstance(part, Experts)]
    return EXPERT_TOKENS * experts.experts / experts.top_k


def query_heads_per_kv_head() -> float:
    """Of the anchor's attention layers: what sharing keys and values among query heads saves."""
    [mixer] = {layer.mixer for layer, _ in catalogue.load(ANCHOR).groups if isinstance(layer.mixer, Attention)}
    return mixer.heads / mixer.kv_heads


def compute_gain(factor: float) -> float:
    """How much faster one sequence is written, weights alone, with `factor` times the compute and the same memory."""
    step = weights_alone()
    return step["time_s"] / max(step["compute_time_s"] / factor, step["memory_time_s"])


def _state(kind: str) -> int:
    moved = case()["decode"]["bytes"]
    return int(moved[f"state_{kind}"])


def _step(device: str) -> float:
    return weights_alone(device)["time_s"]


FIGURES: dict[str, Callable[[], float]] = {
    "matmul_params": lambda: case()["params"]["matmul"],
    "trunk_params": lambda: case()["params"]["trunk"],
    "matmul_billions": lambda: case()["params"]["matmul"] / 1e9,
    "trunk_billions": lambda: case()["params"]["trunk"] / 1e9,
    "checkpoint_params": lambda: case()["params"]["checkpoint"],
    "weight_gb": lambda: case()["decode"]["bytes"]["weights"] / 1e9,
    "flops_only_rate": lambda: 1 / weights_alone()["compute_time_s"],
    "flops_only_ms": lambda: weights_alone()["compute_time_s"] * 1e3,
    "weights_only_rate": lambda: 1 / weights_alone()["time_s"],
    "compute_used_percent": lambda: weights_alone()["compute_time_s"] / weights_alone()["time_s"] * 100,
    "ridge": lambda: case()["ridge_flop_per_byte"],
    "compute_bound_from": lambda: case()["limits"]["compute_bound_prompt_tokens"],
    "prefill_4_ms": lambda: case(prompt_tokens=PROMPT)["prefill"]["time_s"] * 1e3,
    "decode_after_4_ms": lambda: case(context=PROMPT)["decode"]["time_s"] * 1e3,
    "prefill_4_intensity": lambda: case(prompt_tokens=PROMPT)["prefill"]["intensity"],
    "prefill_2048_ms": lambda: case(prompt_tokens=LONG)["prefill"]["time_s"] * 1e3,
    "prefill_2048_token_ms": lambda: prefill_token_s() * 1e3,
    "written_over_read": lambda: case(context=PROMPT)["decode"]["time_s"] / prefill_token_s(),
    "kv_token_bytes": kv_bytes_per_token,
    "kv_token_kib": lambda: kv_bytes_per_token() / 1024,
    "state_mb": lambda: _state("read") / 1e6,
    "state_mib": lambda: _state("read") / 2**20,
    "state_traffic_mb": lambda: (_state("read") + _state("write")) / 1e6,
    "kv_equals_state": lambda: case()["limits"]["kv_equals_state_context"],
    "state_equals_replaced": lambda: case()["limits"]["state_equals_replaced_kv_context"],
    "own_mb_4096": lambda: own_bytes() / 1e6,
    "held_mb_4096": lambda: held_bytes() / 1e6,
    "largest_batch_4096": lambda: case(context=CONTEXT)["capacity"]["max_batch"],
    "limit_intensity_4096": lambda: case(context=CONTEXT)["limits"]["intensity_at_infinite_batch"],
    "intensity_58": lambda: case(context=CONTEXT, batch=CROWD)["decode"]["intensity"],
    "rate_58": lambda: case(context=CONTEXT, batch=CROWD)["decode"]["tokens_per_s"],
    "rate_1": lambda: case(context=CONTEXT)["decode"]["tokens_per_s"],
    "rate_58_each": lambda: case(context=CONTEXT, batch=CROWD)["decode"]["tokens_per_s"] / CROWD,
    "int4_gain": lambda: weights_alone()["time_s"] / case(weights="int4")["decode"]["weights_only"]["time_s"],
    "triple_compute_gain": lambda: compute_gain(3),
    "a100_ms": lambda: _step(A100) * 1e3,
    "h100_ms": lambda: _step(H100) * 1e3,
    "a100_tflops": lambda: roof_of(hardware.load(A100), Formats())[0].flops_per_s / 1e12,
    "h100_tflops": lambda: roof_of(hardware.load(H100), Formats())[0].flops_per_s / 1e12,
    "a100_tb_per_s": lambda: hardware.load(A100).bandwidth_bytes_per_s / 1e12,
    "h100_tb_per_s": lambda: hardware.load(H100).bandwidth_bytes_per_s / 1e12,
    "speed_a100_h100": lambda: _step(A100) / _step(H100),
    "compute_a100_h100": lambda: weights_alone(A100)["compute_time_s"] / weights_alone()["compute_time_s"],
    "speed_h100_a100": lambda: _step(H100) / _step(A100),
    "compute_h100_a100": lambda: weights_alone()["compute_time_s"] / weights_alone(A100)["compute_time_s"],
    "h200_gain_percent": lambda: (_step(H100) / _step(H200) - 1) * 100,
    "h200_compute": lambda: weights_alone()["compute_time_s"] / weights_alone(H200)["compute_time_s"],
    "other_kv_ratio": lambda: kv_bytes_per_token(OTHER) / kv_bytes_per_token(),
    "attention_intensity": lambda: case()["decode"]["attention"]["intensity"],
    "layers": lambda: sum(count for layer, count in catalogue.load(ANCHOR).groups if layer.mixer is not None),
    "ffn_inputs": lambda: ffn_matrix()[0],
    "ffn_outputs": lambda: ffn_matrix()[1],
    "matrix_4_over_1": lambda: matrix_ratio(PROMPT),
    "matrix_2048_over_1": lambda: matrix_ratio(LONG),
    "paper_passes": lambda: passes(*PAPER, first_token_from_prefill=False),
    "paper_passes_engine": lambda: passes(*PAPER, first_token_from_prefill=True),
    "token_passes_1000": lambda: token_passes(PROMPT, 1000, cache=True),
    "token_passes_1000_no_cache": lambda: token_passes(PROMPT, 1000, cache=False),
    "expert_ridge_rows": expert_ridge_rows,
    "expert_tokens": lambda: EXPERT_TOKENS,
    "tokens_in_flight": tokens_in_flight,
    "mixture_bound_from": lambda: case(MIXTURE, H800)["limits"]["compute_bound_prompt_tokens"],
    "static_use_percent": lambda: static_batch_use() * 100,
    "longest_context": lambda: catalogue.load(ANCHOR).max_position,
    "longest_gb": lambda: kv_bytes_per_token() * catalogue.load(ANCHOR).max_position / 1e9,
    "longest_batch": lambda: case(context=catalogue.load(ANCHOR).max_position)["capacity"]["max_batch"],
    "draft_percent": lambda: draft_share() * 100,
    "stalled_steps": lambda: case(prompt_tokens=LONG)["prefill"]["time_s"] / case(context=PROMPT)["decode"]["time_s"],
    "vocabulary": lambda: catalogue.load(ANCHOR).vocab_size,
    "gqa_saving": query_heads_per_kv_head,
    "mixture_kv_kib": lambda: kv_bytes_per_token(MIXTURE) / 1024,
}


@cache
def figure(name: str) -> float:
    """One figure by its name, computed once."""
    return float(FIGURES[name]())
