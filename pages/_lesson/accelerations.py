"""How inference got faster: each step, what it solved, the number it got stuck at, and where to try it. Pure data.

The facts are those of the publications named; every number is a figure of `engine.lesson` by its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine import lesson
from engine.errors import N_

ANCHOR = {
    "model": lesson.ANCHOR,
    "device": lesson.H100,
    "preset": "lesson",
    "weights": "own",
    "kv": "own",
    "state": "own",
}


@dataclass(frozen=True)
class Acceleration:
    """One step of the map. page: the address where it can be tried, None where the lab cannot show it yet."""

    name: str
    solved: str
    stuck: str
    figures: dict[str, int] = field(default_factory=dict)
    page: str | None = None
    query: dict[str, str] = field(default_factory=dict)


MAP: tuple[Acceleration, ...] = (
    Acceleration(
        N_("Put the whole text through again for each token"),
        N_("It works, and needs no memory of anything."),
        N_("1,000 tokens after a prompt of four take {token_passes_1000_no_cache} tokens through the model."),
        {"token_passes_1000_no_cache": 0},
        "steps",
    ),
    Acceleration(
        N_("KV cache"),
        N_("Keys and values of earlier tokens are kept: {token_passes_1000} tokens through the model are enough."),
        N_(
            "Each token still brings in {weight_gb} GB: by them alone {weights_only_rate} tokens a second on an H100, "
            "with {compute_used_percent} % of its compute in use."
        ),
        {"token_passes_1000": 0, "weight_gb": 2, "weights_only_rate": 0, "compute_used_percent": 2},
        "steps",
    ),
    Acceleration(
        N_("Batching: several requests share one reading"),
        N_("58 requests at a context of 4,096 write {rate_58} tokens a second on the same card."),
        N_(
            "They start and end together. Answers of 5, 20, 50 and 100 tokens use {static_use_percent} % of "
            "their places; the rest waits for the longest."
        ),
        {"rate_58": 0, "static_use_percent": 0},
        "batch",
        ANCHOR | {"batch": "58", "context": "4096"},
    ),
    Acceleration(
        N_("Continuous batching: join and leave at every step (Orca)"),
        N_("A place that becomes free is taken at the next step."),
        N_(
            "Each request reserves memory for its longest possible text: {longest_gb} GB for {longest_context} "
            "tokens. Then {longest_batch} fits, not {largest_batch_4096}."
        ),
        {"longest_gb": 1, "longest_context": 0, "longest_batch": 0, "largest_batch_4096": 0},
        "batch",
        ANCHOR | {"batch": "2", "context": "262144"},
    ),
    Acceleration(
        N_("Paged KV cache: memory block by block, as needed (vLLM)"),
        N_("Only what is filled takes room: at a context of 4,096 {largest_batch_4096} requests fit again."),
        N_(
            "The one who waits gains nothing: each of the 58 gets {rate_58_each} tokens a second, alone it "
            "would get {rate_1}."
        ),
        {"largest_batch_4096": 0, "rate_58_each": 1, "rate_1": 1},
        "batch",
        ANCHOR | {"batch": "58", "context": "4096"},
    ),
    Acceleration(
        N_("Speculative decoding: guess several, check all in one pass"),
        N_(
            "Reading four tokens of a new text takes {prefill_4_ms} ms, writing one after them {decode_after_4_ms}: "
            "so four are checked for about the price of one."
        ),
        N_("The draft is a second model, to be held and to be run."),
        {"prefill_4_ms": 2, "decode_after_4_ms": 2},
        "levers",
    ),
    Acceleration(
        N_("The model as its own draft (multi-token prediction)"),
        N_("One extra layer guesses ahead, {draft_percent} % of the weights."),
        N_("A guess that is refused was read for nothing, and a full batch has no free rows left to check with."),
        {"draft_percent": 1},
    ),
    Acceleration(
        N_("Quantisation: fewer bits for each weight"),
        N_("In four bits a token comes {int4_gain} times as fast, by the bytes of the weights."),
        N_("Not every weight can be rounded so far without harm to the text."),
        {"int4_gain": 1},
        "roofline",
        ANCHOR | {"weights": "int4", "prompt": "4", "batch": "1", "context": "4096"},
    ),
    Acceleration(
        N_("Scheduling for both waits: prefill in pieces, phases on separate machines (DistServe)"),
        N_("The wait for the first token and the wait for each further one get limits of their own."),
        N_("One prompt of 2,048 tokens takes the place of {stalled_steps} decode steps of everybody else."),
        {"stalled_steps": 1},
        "roofline",
        ANCHOR | {"prompt": "2048", "batch": "1", "context": "4096"},
    ),
    Acceleration(
        N_("Sampling: temperature, top-k, top-p, min-p"),
        N_("Not faster, but better text: one of {vocabulary} tokens is picked by rules."),
        N_("Which rule suits which text is a matter of taste and of measurement."),
        {"vocabulary": 0},
        "",
        {"temperature": "0.8", "top_p": "0.95"},
    ),
    Acceleration(
        N_("Keep less: shared heads, compressed vectors, fixed states"),
        N_(
            "Shared key heads make the cache {gqa_saving} times smaller; DeepSeek-V3 keeps {mixture_kv_kib} "
            "KiB a token for all its heads; a state of {state_mb} MB does not grow at all."
        ),
        N_("A state forgets: what does not fit into it is gone."),
        {"gqa_saving": 0, "mixture_kv_kib": 1, "state_mb": 0},
        "memory",
        {"context": "4096", "count": "held", "preset": "lesson"},
    ),
)
