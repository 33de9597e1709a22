"""What the replay's browser side is given: the run's steps as columns, its matrices, the boxes, and every word."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from engine import replay
from engine.record import Run
from pages._lesson import boxes, glossary
from pages._parts import palette
from pages._parts.words import Words

COLOURS = {
    "prefill": palette.PREFILL,
    "decode": palette.DECODE,
    "weights": palette.WEIGHTS,
    "kv": palette.KV,
    "state": palette.STATE,
    "conv": palette.CONV,
    "logits": palette.LOGITS,
    "floor": palette.FLOOR,
}


def replay_data(t: Words, run: Run, at: int) -> dict[str, Any]:
    """The component's data, starting at step `at`."""
    shown = boxes.boxes(t)
    words = _words(t)
    return {
        "run": run.id,
        "at": at,
        "locale": t.language,
        "batch": run.request.batch,
        "columns": replay.columns(run),
        "matrices": _matrices(run),
        "boxes": shown,
        "code": boxes.code(t),
        "colours": COLOURS,
        "words": words,
        "terms": glossary.mentioned(t, *words.values()),
    }


def _matrices(run: Run) -> list[dict[str, Any]]:
    spec = replay.spec_of(run)
    return [] if spec is None else [asdict(matrix) for matrix in replay.matrices(spec)]


def _words(t: Words) -> dict[str, str]:
    return {
        "step": t("Pass {number} of {of}"),
        "prefill_step": t("prefill: {rows} rows in one pass"),
        "decode_step": t("decode: one row, at context {context}"),
        "first": t("First step"),
        "back": t("Back"),
        "play": t("Play"),
        "pause": t("Pause"),
        "next": t("Next"),
        "last": t("Last step"),
        "slider": t("Step of the run"),
        "keys": t("Arrow keys go back and forth, Home and End to the ends, P plays."),
        "all": t("The whole run: one block that reads, then a cell for each token that is written"),
        "way": t("The way through the server"),
        "loop": t("and again from the second box, until the end"),
        "open": t("Press a box to open it."),
        "this_step": t("This step"),
        "anchor": t("Qwen3.8-27B on an H100"),
        "not_now": t("Not part of this step."),
        "goes_in": t("Goes in"),
        "comes_out": t("Comes out"),
        "more": t("and {count} more"),
        "shapes": t("Shapes, drawn to scale"),
        "matrix": t("Matrix"),
        "rows": t("rows"),
        "inputs": t("input"),
        "weights_of": t("weights"),
        "outputs": t("output"),
        "too_thin": t("{rows} × {k} would be {pixels} of a pixel high here; it is drawn as one."),
        "head_row": t("The head meets the last row alone: only the next token needs scores."),
        "no_shapes": t("The record does not say the model's shapes."),
        "work": t("{name}, in {count} layers: {flops} a layer at {rows} × {k}; the weights are read once."),
        "memory": t("What the model remembers"),
        "kv_line": t("{filled} of [KV cache](term:kv_cache) for {context} tokens, {each} a token; {added} new"),
        "kv_cells": t("A cell is {count} tokens."),
        "state_line": t("{held} of [recurrent state](term:state), rewritten as a whole"),
        "no_state": t("This model has no recurrent state: all it remembers is the cache."),
        "bytes": t("Bytes of this step"),
        "kind": t("of"),
        "read": t("read"),
        "written": t("written"),
        "total": t("in all"),
        "weights": t("weights"),
        "kv": t("KV cache"),
        "state": t("recurrent state"),
        "conv": t("convolution state"),
        "logits": t("logits"),
        "time": t("Time of this step"),
        "measured": t("measured"),
        "expected": t("expected before the run"),
        "roof": t("measured roof, least time"),
        "code": t("The same as a program"),
    }
