"""The path: its steps in order, the page each uses and with which settings, and what each says. Pure data.

What is read before the question never speaks of something that only the answered step shows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from engine import lesson
from engine.errors import N_

CARD = {
    "model": lesson.ANCHOR,
    "device": lesson.H100,
    "preset": "lesson",
    "weights": "own",
    "kv": "own",
    "state": "own",
}
CARDS = CARD | {"before": lesson.A100, "estimate": "weights", "batch": "1"}


@dataclass(frozen=True)
class Step:
    """One idea, one thing to do, one thing to see, on a real page with prepared settings.

    idea is read before the question; do and see after it. figures: names of `engine.lesson` figures with the number
    of decimals they are shown to, which fill the texts.
    """

    id: str
    page: str
    title: str
    idea: str
    do: str
    see: str
    query: dict[str, str] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)
    minutes: int = 3


STEPS: tuple[Step, ...] = (
    Step(
        "question",
        "",
        N_("The question"),
        N_(
            "The same model on the same machine reads a prompt fast and writes slowly. It works in "
            "[passes](term:pass): one pass reads the whole prompt, that is [prefill](term:prefill); each further "
            "pass, [decode](term:decode), writes a single [token](term:token)."
        ),
        N_(
            "Press **Run** and watch the chart fill: each point is one pass, the green one the prefill, the blue ones "
            "decode. Until then a recorded run is shown."
        ),
        N_(
            "The whole prompt is one point, and every single token is another of its own. Whoever waits for a "
            "text waits for the blue ones, because there are so many."
        ),
        {"model": "smollm2-135m", "length": "24", "batch": "1"},
        minutes=4,
    ),
    Step(
        "request",
        "steps",
        N_("One request, step by step"),
        N_(
            "A request goes through the server in two phases. It is like an exam: the question is read once, "
            "from top to bottom; then the answer is written word after word, with an eye on one's notes and "
            "without reading the question again. The notes are the [KV cache](term:kv_cache)."
        ),
        N_(
            "Go through the run with the arrow keys and open the boxes of the drawing. Then solve the "
            "pen-and-paper task at the end of the page."
        ),
        N_(
            "The first step puts the whole prompt into the cache at once. Every later step adds one entry, "
            "computes a single row, and reads every weight again."
        ),
        minutes=6,
    ),
    Step(
        "first-guess",
        "devices",
        N_("A first guess: by compute"),
        N_(
            "The obvious estimate, for the model of the lesson, Qwen3.8-27B, on an H100, a card of data centres. A "
            "new token is multiplied with {matmul_billions} billion parameters, two operations for each; the card does "
            "so many operations a second. (Of the {trunk_billions} billion parameters of the text model the table of "
            "embeddings is only looked up, so it does not count; image part and draft layer are not used.)"
        ),
        N_(
            "Read only the figure *compute alone* for now. Exchange the two cards with **Swap** and see what "
            "compute promises for the other one."
        ),
        N_(
            "By [compute alone](term:compute_alone) an H100 writes {flops_only_rate} tokens a second, "
            "{flops_only_ms} ms each; an A100, the card before it, about a third of that. No single reader has ever "
            "seen such a speed."
        ),
        CARDS,
        {"matmul_billions": 1, "trunk_billions": 1, "flops_only_rate": 0, "flops_only_ms": 3},
    ),
    Step(
        "where-it-fails",
        "devices",
        N_("Where the guess fails: by bytes"),
        N_(
            "Before a weight can be multiplied it has to come from memory. The caches built into a chip (others than "
            "the KV cache, which lies in that memory) hold some tens of megabytes; the [weights](term:weights) of "
            "Qwen3.8-27B are {weight_gb} GB. So each new token brings all of them in again, on an H100 at "
            "{h100_tb_per_s} TB/s."
        ),
        N_("Now read the figure *bytes alone*. Then choose the H200 as the card after, and compare its two figures."),
        N_(
            "Bytes allow {weights_only_rate} tokens a second, and {compute_used_percent} % of the compute is "
            "in use. The H200 has the same compute as the H100 and more bandwidth: it writes "
            "{h200_gain_percent} % faster. Back on an A100 compute would promise {compute_h100_a100} of the "
            "H100's speed, bytes {speed_h100_a100}, and bytes are right."
        ),
        CARDS,
        {
            "weight_gb": 2,
            "h100_tb_per_s": 2,
            "weights_only_rate": 0,
            "compute_used_percent": 2,
            "h200_gain_percent": 0,
            "compute_h100_a100": 2,
            "speed_h100_a100": 2,
        },
    ),
    Step(
        "roofline",
        "roofline",
        N_("The roofline"),
        N_(
            "A pass can be no faster than its operations, and no faster than its bytes. Divide the one by the "
            "other: the [arithmetic intensity](term:arithmetic_intensity), operations for each byte, tells "
            "which of the two limits holds. They meet at the [ridge](term:ridge). In prefill each weight is "
            "read once and used for every token of the prompt."
        ),
        N_(
            "Drag the prompt length from 4 to 295 and on to 2,048. Then press the terms of the formula below the chart."
        ),
        N_(
            "The green point climbs the slope and turns onto the flat part at about {ridge} operations a byte: the "
            "ridge of an H100 that multiplies in bf16. Left of it more compute would not help at all."
        ),
        CARD | {"prompt": "4", "batch": "1", "context": "4096"},
        {"ridge": 0},
        minutes=5,
    ),
    Step(
        "two-phases",
        "roofline",
        N_("Two phases under one roof"),
        N_(
            "Prefill and decode are the same model, so they are two points under the same roof. Reading a "
            "short prompt brings in the same {weight_gb} GB as writing one token."
        ),
        N_("Compare the two times with T = 4. Then set T to 2,048 and look at the time for each token."),
        N_(
            "Reading four tokens takes {prefill_4_ms} ms, writing one after them {decode_after_4_ms} ms; the weights "
            "alone are {h100_ms} ms of both. Of 2,048 tokens each costs {prefill_2048_token_ms} ms, {prefill_2048_ms} "
            "ms in all: a written token costs {written_over_read} times a read one."
        ),
        CARD | {"prompt": "4", "batch": "1", "context": "4"},
        {
            "weight_gb": 2,
            "prefill_4_ms": 2,
            "decode_after_4_ms": 2,
            "h100_ms": 2,
            "prefill_2048_token_ms": 3,
            "prefill_2048_ms": 0,
            "written_over_read": 0,
        },
    ),
    Step(
        "one-matrix",
        "shapes",
        N_("One matrix"),
        N_(
            "A model is little more than a long chain of matrices. Take a single one, of a feed-forward block: "
            "{ffn_inputs} × {ffn_outputs}. With many [rows](term:row) it is prefill, with one row decode ([GEMM and "
            "GEMV](term:gemm))."
        ),
        N_("Multiply it here with 1 to 2,048 rows and look where the time begins to rise."),
        N_(
            "Up to the [knee](term:knee) more rows cost nothing: four rows take as long as one. Only beyond it does "
            "the time grow with the rows. On an H100, in bf16, the knee is predicted near {ridge} rows."
        ),
        {},
        {"ffn_inputs": 0, "ffn_outputs": 0, "ridge": 0},
        minutes=4,
    ),
    Step(
        "state-and-kv",
        "memory",
        N_("State against KV"),
        N_(
            "Of the {layers} layers of Qwen3.8-27B only 16 keep keys and values, {kv_token_kib} KiB a token. "
            "The other 48 keep a [recurrent state](term:state) instead: {state_mb} MB for each sequence, never "
            "more, but read and written back as a whole at every step: {state_traffic_mb} MB."
        ),
        N_(
            "Switch between *held* and *moved each step*, and move the context. Set the state's format to bf16 "
            "and see the crossing move. Compare Qwen3-32B, which has no state."
        ),
        N_(
            "Moved, the cache catches up with the state at {kv_equals_state} tokens; held, at "
            "{state_equals_replaced}, if those 48 layers kept a cache as well. Qwen3-32B has no state, but "
            "{other_kv_ratio} times the KV a token."
        ),
        {"model": lesson.ANCHOR, "context": "4096", "count": "moved", "preset": "lesson", "kv": "own", "state": "own"},
        {
            "layers": 0,
            "kv_token_kib": 0,
            "state_mb": 0,
            "state_traffic_mb": 0,
            "kv_equals_state": 0,
            "state_equals_replaced": 0,
            "other_kv_ratio": 0,
        },
        minutes=4,
    ),
    Step(
        "batch",
        "batch",
        N_("Sharing the reading: the batch"),
        N_(
            "If bringing in the weights is what costs, let many sequences share one reading. The weights are "
            "then paid once for the whole [batch](term:batch). But at a [context](term:context) of 4,096 each step "
            "also moves {own_mb_4096} MB for each sequence alone: its cache is read, its state read and written back."
        ),
        N_(
            "Raise the batch to 16, to 58, to 59. Then look at the ring and the blue point on *Roofline* with B = 58. "
            "On *Live sweeps* a batch is measured on this machine."
        ),
        N_(
            "58 sequences write {rate_58} tokens a second together, one alone {rate_1} (by its weights alone, "
            "without cache and state, it would be {weights_only_rate}). Then memory is full: each "
            "[holds](term:held) {held_mb_4096} MB. (It is less than what is [moved](term:moved), because a state is "
            "held once but moved twice, in and out.) And were there room: the intensity stands at {intensity_58} and "
            "never passes {limit_intensity_4096}, far from the H100's ridge at {ridge}."
        ),
        CARD | {"batch": "1", "context": "4096"},
        {
            "own_mb_4096": 0,
            "held_mb_4096": 0,
            "rate_58": 0,
            "rate_1": 1,
            "weights_only_rate": 1,
            "intensity_58": 1,
            "limit_intensity_4096": 0,
            "ridge": 0,
        },
        minutes=4,
    ),
    Step(
        "misconceptions",
        "devices",
        N_("What many believe"),
        N_("Four sentences that sound right. Each can be decided by a number you have seen on the way."),
        N_("Open *What many believe* below and press each button: the same four sentences, each to be tried."),
        N_(
            "A card with {compute_a100_h100} times the compute writes {speed_a100_h100} times as fast. A "
            "prompt of four tokens is bound by bytes like a single token. A batch ends at its memory and at "
            "{limit_intensity_4096} operations a byte. And the arithmetic of a token takes {flops_only_ms} ms, "
            "its weights alone {h100_ms}."
        ),
        CARDS,
        {
            "compute_a100_h100": 2,
            "speed_a100_h100": 2,
            "limit_intensity_4096": 0,
            "flops_only_ms": 3,
            "h100_ms": 1,
        },
        minutes=4,
    ),
    Step(
        "still-open",
        "map",
        N_("What is still open"),
        N_(
            "Writing is slow because each token brings in the whole model, and reading is fast because one "
            "bringing-in serves many tokens. Everything that made inference faster attacks one of the numbers "
            "you have seen."
        ),
        N_(
            "Go down the map: each step has the number that forced it, and nearly each a link to where you can try "
            "it. At its end a very small model is run, which waits for something else. What helps a run on this "
            "machine, and by how much, is on *Levers*."
        ),
        N_(
            "Fewer bytes, more rows for each reading, more tokens for each step: there is no fourth way. What "
            "this path leaves open is where hundreds of caches go in one memory, and how one token is picked from "
            "the scores."
        ),
        minutes=5,
    ),
)
DONE = Step(
    "done",
    "path",
    N_("What you have learned"),
    N_("Your guesses beside the numbers, step by step, and where to go from here."),
    "",
    "",
    minutes=2,
)
"""The end of the path: no question of its own, but a table of all of them."""

BY_ID = {step.id: step for step in (*STEPS, DONE)}
