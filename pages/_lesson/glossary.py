"""Every term of the lab by a short name of its own: how it is written, and its explanation.

A text marks a term as `[KV cache](term:kv_cache)`; cards and drawings turn that into a word to hover or tap, and the
page *Words* lists all of them.
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


# Explanations of `pages._parts.terms` by the name of their constant: how the term is written, and its page.
_NAMES: dict[str, tuple[str, str]] = {
    "PREFILL": (N_("prefill"), "steps"),
    "DECODE": (N_("decode"), "steps"),
    "TTFT": (N_("TTFT, time to first token"), ""),
    "TPOT": (N_("TPOT, time per output token"), ""),
    "TOKENS_PER_S": (N_("tokens a second"), ""),
    "MBU": (N_("MBU, memory bandwidth utilisation"), ""),
    "MFU": (N_("MFU, model FLOPs utilisation"), ""),
    "EXPECTED_ERROR": (N_("prediction error"), ""),
    "KV_CACHE": (N_("KV cache"), "memory"),
    "ARITHMETIC_INTENSITY": (N_("arithmetic intensity"), "roofline"),
    "RIDGE": (N_("ridge point"), "roofline"),
    "EXPECTED": (N_("expected line"), ""),
    "ROOF": (N_("measured roof"), "machine"),
    "FLOOR": (N_("datasheet floor"), ""),
    "WEIGHTS": (N_("weights"), ""),
    "STATE": (N_("recurrent state"), "memory"),
    "CONV": (N_("convolution state"), "memory"),
    "LOGITS": (N_("logits"), "steps"),
    "HEAD": (N_("head"), "steps"),
    "KNEE": (N_("knee"), "shapes"),
    "FLAT_START": (N_("flat start"), "shapes"),
    "MEASURED_ROWS": (N_("measured product"), "shapes"),
    "MEASURED_STEPS": (N_("measured steps"), ""),
    "LAUNCH": (N_("launch cost"), "machine"),
    "BATCH": (N_("batch"), "batch"),
    "CHAT": (N_("chat template"), ""),
    "TEMPERATURE": (N_("temperature"), ""),
    "TOP_K": (N_("top-k"), ""),
    "TOP_P": (N_("top-p"), ""),
    "MIN_P": (N_("min-p"), ""),
    "SEED": (N_("seed"), ""),
    "DTYPE": (N_("number format"), ""),
    "PERPLEXITY": (N_("perplexity"), "levers"),
    "LENGTH": (N_("length"), ""),
    "CONVENTION": (N_("convention"), "roofline"),
    "WEIGHTS_ALONE": (N_("weights alone"), "roofline"),
    "ATTENTION_ALONE": (N_("decode attention"), "roofline"),
    "ROOFLINE": (N_("roofline"), "roofline"),
    "MEASURED": (N_("measured run"), ""),
    "FLOPS": (N_("FLOPs"), "roofline"),
    "BYTES": (N_("bytes of a step"), "roofline"),
    "PEAK": (N_("peak π"), "devices"),
    "BANDWIDTH": (N_("bandwidth β"), "devices"),
    "STEP_TIME": (N_("time of a step"), "roofline"),
    "COMPUTE_ALONE": (N_("compute alone"), "devices"),
    "BYTES_ALONE": (N_("bytes alone"), "devices"),
    "LARGEST_BATCH": (N_("largest batch"), "batch"),
    "INTENSITY_LIMIT": (N_("limit of the intensity"), "batch"),
    "CROSSOVER": (N_("crossover"), "memory"),
    "SHARE_OF_ROOF": (N_("share of the roof"), "devices"),
    "REPLACED": (N_("replaced KV"), "memory"),
    "HELD": (N_("held"), "memory"),
    "MOVED": (N_("moved"), "memory"),
    "CONFIDENCE": (N_("confidence of a figure"), "devices"),
    "EXPERTS": (N_("experts"), "map"),
    "WINDOW": (N_("sliding window"), "memory"),
    "LATENT": (N_("latent attention (MLA)"), "memory"),
    "LATENT_FORM": (N_("form of latent attention"), ""),
    "FORETOLD": (N_("foretold"), "levers"),
}
# Terms that only the lesson uses.
_OWN: dict[str, Term] = {
    "token": Term(
        N_("token"), N_("A piece of text the model reads or writes at once: a word, part of one, or a sign."), "steps"
    ),
    "gemm": Term(
        N_("GEMM and GEMV"),
        N_("A matrix times many rows (GEMM), or times a single one (GEMV): the same weights read, more or less done."),
        "shapes",
    ),
    "greedy": Term(
        N_("greedy"), N_("Always taking the likeliest next token, so that the same prompt gives the same text."), ""
    ),
    "speculative": Term(
        N_("speculative decoding"),
        N_(
            "A cheap draft guesses several tokens; one pass of the model checks them all and keeps those it "
            "agrees with."
        ),
        "levers",
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
    "goodput": Term(
        N_("goodput"), N_("Requests a second that meet both limits, on the first token and on each further one."), "map"
    ),
}


def _collected() -> dict[str, Term]:
    """All explanations of the lab; one that has no name of its own yet stands for itself."""
    explained = {name: text for name, text in vars(terms).items() if name.isupper() and isinstance(text, str)}
    found = {}
    for constant, text in explained.items():
        name, page = _NAMES.get(constant, ("", ""))
        found[constant.lower()] = Term(name, text, page)
    return found | _OWN


TERMS = _collected()


def mentioned(t: Words, *texts: str) -> dict[str, dict[str, str]]:
    """The terms that texts of this language mark, for whoever draws them: id -> name and explanation."""
    found = {term for text in texts for _, term in MARK.findall(text)}
    return {term: {"name": t(TERMS[term].name), "text": t(TERMS[term].text)} for term in sorted(found)}
