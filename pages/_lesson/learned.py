"""What each step of the path leaves behind, in a sentence, and where one may go from its end. Pure data."""

from __future__ import annotations

from engine.errors import N_

# Step -> the sentence, and the figures of `engine.lesson` that fill it with the decimals they are shown to.
LEARNED: dict[str, tuple[str, dict[str, int]]] = {
    "question": (N_("Reading is one pass for the whole prompt, writing is one pass for each token."), {}),
    "request": (
        N_("{prompt} tokens in and {output} out take {paper_passes_engine} passes here: the prompt costs one."),
        {"paper_passes_engine": 0},
    ),
    "first-guess": (
        N_("By its arithmetic a token takes {flops_only_ms} ms on an H100. No machine writes that fast."),
        {"flops_only_ms": 3},
    ),
    "where-it-fails": (
        N_("The weights alone are {weight_gb} GB a token: {h100_ms} ms, with {compute_used_percent} % of the compute "
           "in use."),
        {"weight_gb": 2, "h100_ms": 1, "compute_used_percent": 2},
    ),
    "roofline": (
        N_("Operations for each byte decide which limit holds; on an H100 in bf16 the two meet at {ridge}."),
        {"ridge": 0},
    ),
    "two-phases": (
        N_("Of a long prompt a token is read in {prefill_2048_token_ms} ms; after a prompt of four one is written in "
           "{decode_after_4_ms} ms."),
        {"prefill_2048_token_ms": 3, "decode_after_4_ms": 2},
    ),
    "one-matrix": (N_("Up to the knee more rows are free: the same weights are read for all of them."), {}),
    "state-and-kv": (
        N_("A cache grows with the text, a state does not; read and written each time, it weighs as much as the "
           "cache of {kv_equals_state} tokens."),
        {"kv_equals_state": 0},
    ),
    "batch": (
        N_("A batch shares the weights, not the caches: 58 sequences write {rate_58} tokens a second, not 58 times "
           "{rate_1}."),
        {"rate_58": 0, "rate_1": 1},
    ),
    "misconceptions": (
        N_("{compute_a100_h100} times the compute gives {speed_a100_h100} times the speed: bandwidth decides."),
        {"compute_a100_h100": 2, "speed_a100_h100": 2},
    ),
    "still-open": (
        N_("Fewer bytes, more rows for each reading, more tokens for each step: nothing else makes it faster."),
        {},
    ),
}  # fmt: skip

# Page, what it is called, and what there is to do.
ONWARD: tuple[tuple[str, str, str], ...] = (
    ("levers", N_("Levers"), N_("Take a run of your own, read what would make it faster, and press: is it true here?")),
    ("sweeps", N_("Live sweeps"), N_("Measure a growing batch, prompt or context, and lay it over the prediction.")),
    ("devices", N_("Devices"), N_("Put in the card you have, or would like to have.")),
    ("roofline", N_("Roofline"), N_("Paste the config.json of another model and see where its points lie.")),
    ("map", N_("How it got faster"), N_("Read on: what the years after brought, and which number forced it.")),
    ("glossary", N_("Words"), N_("Look up a word, or the formulas with your own numbers in them.")),
)
