"""How a long prompt is cut: one rule, for who runs it and for who counts it. No torch."""

from __future__ import annotations

from itertools import pairwise

PREFILL_ROWS = 2048
"""Rows one pass of a prefill takes: matrices are multiplied at full speed from a few hundred on, and what lies between
two of them then is tens to hundreds of megabytes, whatever the prompt's length."""


def chunk_lengths(tokens: int, batch: int, rows: int = PREFILL_ROWS) -> list[int]:
    """Lengths of the chunks of one sequence, in order: as few as `rows` allows, and as equal as can be.

    Equal ones, because a last chunk of one token would be read as if it were decoded.

    Args:
        tokens: of one prompt. batch: prompts read at once. rows: the most tokens of all prompts in one chunk.
    """
    most = max(1, rows // batch)
    count = -(-tokens // most)
    return [end - start for start, end in pairwise(tokens * part // count for part in range(count + 1))]
