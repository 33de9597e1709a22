"""Where a step finds everything: one record of sizes and addresses, and one of addresses for each layer.

A compiled function that takes hundreds of arrays pays for each at every call; one that takes a table pays once. All are
64-bit: counts, addresses of tensors ("p_..."; 0 where there is none), strides and offsets in bytes.
"""

from __future__ import annotations

import numpy as np

_SIZES = [
    "threads",
    "rows",  # batch x tokens
    "batch",
    "tokens",
    "every",  # 1 for logits of every new token, 0 for the last ones of each sequence
    "start",  # positions cached before the step
    "capacity",  # positions the cache has places for
    "splits",  # parts that a long context is cut in, for threads to share
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "head_dim",
    "width",  # of the feed-forward part
    "vocab",
    "group",  # weights that share a scale in int4
    "hidden_k",  # numbers in a stored row of that inner size: int4 fills the last group with zeros
    "inner_k",
    "width_k",
]
_OUTER = [f"p_{name}{part}" for name in ("embedding", "head") for part in ("", "_scale", "_bias")] + ["p_norm"]
_CONTEXT = ["p_cos", "p_signed_sin", "p_cache", "p_cache_scales"]  # scales of an int8 cache, bf16
_BUFFERS = [
    "p_layers",  # LAYER records
    "p_ids",  # int64
    "p_counter",  # where threads meet: see `team.meeting_place`
    "p_marks",  # moments, as POSIX timespecs
    "clock",  # the system's number of the clock they are read from
    "p_x",
    "p_qkv",
    "p_mixed",
    "p_partial",
    "p_gated",
    "p_logits",
    "x_stride",
    "qkv_stride",
    "mixed_stride",
    "gated_stride",
]
# Each thread's own memory begins with the normed rows; the rest lies at these offsets.
_PRIVATE = ["p_private", "private_bytes", "normed_stride", "merged_at", "attention_at", "sums_at"]

STEP = np.dtype(
    [(name, np.int64) for name in (*_SIZES, *_OUTER, *_CONTEXT, *_BUFFERS, *_PRIVATE)]
    + [("eps", np.float32), ("scale", np.float32)]  # of the norms; what scores are multiplied by
)

_LINEARS = ["qkv", "out", "gate_up", "down"]
LAYER = np.dtype(
    [(f"p_{name}{part}", np.int64) for name in _LINEARS for part in ("", "_scale", "_bias")]
    + [(f"p_{name}", np.int64) for name in ("input_norm", "post_norm", "q_norm", "k_norm")]
)

MARKS_BEFORE, MARKS_PER_LAYER, MARKS_AFTER = 2, 5, 1
"""Moments noted: the start and the embedding; in each layer qkv, attention, out, gate/up and down; the head."""


def marks_of(layers: int) -> int:
    """How many moments one step notes."""
    return MARKS_BEFORE + MARKS_PER_LAYER * layers + MARKS_AFTER
