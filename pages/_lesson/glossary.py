"""Every term of the lab by a short name of its own: how it is written, and its explanation.

A text marks a term as `[KV cache](term:kv_cache)`; cards and drawings turn that into a word to hover or tap, and the
page *Words* lists all of them. A test holds this list against the explanations in `pages._parts.terms`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.errors import N_
from pages._parts import terms
from pages._parts.words import Words

MARK = re.compile(r"\[([^\]]+)\]\(term:([a-z_]+)\)")


@dataclass(frozen=True)
class Term:
    """A term as written, its explanation, and the address of the page where it is at work."""

    name: str
    text: str
    page: str = ""


TERMS: dict[str, Term] = {
    "prefill": Term(N_("prefill"), terms.PREFILL, "steps"),
    "decode": Term(N_("decode"), terms.DECODE, "steps"),
    "ttft": Term(N_("TTFT, time to first token"), terms.TTFT),
    "tpot": Term(N_("TPOT, time per output token"), terms.TPOT),
    "tokens_per_s": Term(N_("tokens a second"), terms.TOKENS_PER_S),
    "mbu": Term(N_("MBU, memory bandwidth utilisation"), terms.MBU),
    "mfu": Term(N_("MFU, model FLOPs utilisation"), terms.MFU),
    "expected_error": Term(N_("prediction error"), terms.EXPECTED_ERROR),
    "kv_cache": Term(N_("KV cache"), terms.KV_CACHE, "memory"),
    "arithmetic_intensity": Term(N_("arithmetic intensity"), terms.ARITHMETIC_INTENSITY, "roofline"),
    "ridge": Term(N_("ridge point"), terms.RIDGE, "roofline"),
    "expected": Term(N_("expected line"), terms.EXPECTED),
    "roof": Term(N_("measured roof"), terms.ROOF, "machine"),
    "floor": Term(N_("datasheet floor"), terms.FLOOR),
    "weights": Term(N_("weights"), terms.WEIGHTS),
    "state": Term(N_("recurrent state"), terms.STATE, "memory"),
    "conv": Term(N_("convolution state"), terms.CONV, "memory"),
    "logits": Term(N_("logits"), terms.LOGITS, "steps"),
    "head": Term(N_("head"), terms.HEAD, "steps"),
    "knee": Term(N_("knee"), terms.KNEE, "shapes"),
    "flat_start": Term(N_("flat start"), terms.FLAT_START, "shapes"),
    "measured_rows": Term(N_("measured product"), terms.MEASURED_ROWS, "shapes"),
    "measured_steps": Term(N_("measured steps"), terms.MEASURED_STEPS),
    "launch": Term(N_("launch cost"), terms.LAUNCH, "machine"),
    "batch": Term(N_("batch"), terms.BATCH, "batch"),
    "chat": Term(N_("chat template"), terms.CHAT),
    "temperature": Term(N_("temperature"), terms.TEMPERATURE),
    "top_k": Term(N_("top-k"), terms.TOP_K),
    "top_p": Term(N_("top-p"), terms.TOP_P),
    "min_p": Term(N_("min-p"), terms.MIN_P),
    "seed": Term(N_("seed"), terms.SEED),
    "dtype": Term(N_("number format"), terms.DTYPE),
    "length": Term(N_("length"), terms.LENGTH),
    "convention": Term(N_("convention"), terms.CONVENTION, "roofline"),
    "weights_alone": Term(N_("weights alone"), terms.WEIGHTS_ALONE, "roofline"),
    "attention_alone": Term(N_("decode attention"), terms.ATTENTION_ALONE, "roofline"),
    "roofline": Term(N_("roofline"), terms.ROOFLINE, "roofline"),
    "measured": Term(N_("measured run"), terms.MEASURED),
    "flops": Term(N_("FLOPs"), terms.FLOPS, "roofline"),
    "bytes": Term(N_("bytes of a step"), terms.BYTES, "roofline"),
    "peak": Term(N_("peak π"), terms.PEAK, "devices"),
    "bandwidth": Term(N_("bandwidth β"), terms.BANDWIDTH, "devices"),
    "step_time": Term(N_("time of a step"), terms.STEP_TIME, "roofline"),
    "compute_alone": Term(N_("compute alone"), terms.COMPUTE_ALONE, "devices"),
    "bytes_alone": Term(N_("bytes alone"), terms.BYTES_ALONE, "devices"),
    "largest_batch": Term(N_("largest batch"), terms.LARGEST_BATCH, "batch"),
    "intensity_limit": Term(N_("limit of the intensity"), terms.INTENSITY_LIMIT, "batch"),
    "crossover": Term(N_("crossover"), terms.CROSSOVER, "memory"),
    "share_of_roof": Term(N_("share of the roof"), terms.SHARE_OF_ROOF, "devices"),
    "replaced": Term(N_("replaced KV"), terms.REPLACED, "memory"),
    "held": Term(N_("held"), terms.HELD, "memory"),
    "moved": Term(N_("moved"), terms.MOVED, "memory"),
    "confidence": Term(N_("confidence of a figure"), terms.CONFIDENCE, "devices"),
    "token": Term(
        N_("token"), N_("A piece of text the model reads or writes at once: a word, part of one, or a sign."), "steps"
    ),
    "gemm": Term(
        N_("GEMM and GEMV"),
        N_("A matrix times many rows (GEMM), or times a single one (GEMV): the same weights read, more or less done."),
        "shapes",
    ),
    "greedy": Term(
        N_("greedy"), N_("Always taking the likeliest next token, so that the same prompt gives the same text.")
    ),
    "speculative": Term(
        N_("speculative decoding"),
        N_(
            "A cheap draft guesses several tokens; one pass of the model checks them all and keeps those it "
            "agrees with."
        ),
        "map",
    ),
    "quantisation": Term(
        N_("quantisation"), N_("Holding each weight in fewer bits, so that a step has fewer bytes to read."), "roofline"
    ),
    "mixture": Term(
        N_("mixture of experts"),
        N_("A model whose layers hold many feed-forward blocks, of which each token uses only a few."),
        "map",
    ),
    "gqa": Term(
        N_("grouped queries (GQA)"),
        N_("Several query heads share one head of keys and values, so the cache is smaller."),
        "memory",
    ),
    "mla": Term(
        N_("latent attention (MLA)"),
        N_("Keys and values of all heads are kept as one compressed vector a token."),
        "memory",
    ),
    "goodput": Term(
        N_("goodput"), N_("Requests a second that meet both limits, on the first token and on each further one."), "map"
    ),
}


def mentioned(t: Words, *texts: str) -> dict[str, dict[str, str]]:
    """The terms that texts of this language mark, for whoever draws them: id -> name and explanation."""
    found = {term for text in texts for _, term in MARK.findall(text)}
    return {term: {"name": t(TERMS[term].name), "text": t(TERMS[term].text)} for term in sorted(found)}
