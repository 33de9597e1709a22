"""Every term of the lab by a short name of its own: how it is written, and its explanation.

A text marks a term as `[KV cache](term:kv_cache)`; cards and drawings turn that into a word to hover or tap, and the
page *Words* lists all of them.
"""

from __future__ import annotations

import re

from engine.errors import N_
from pages._lesson.plain_terms import OWN, Term
from pages._parts import terms
from pages._parts.words import Words

MARK = re.compile(r"\[([^\]]+)\]\(term:([a-z_]+)\)")


# Explanations of `pages._parts.terms` by the name of their constant: how the term is written, and its page.
_NAMES: dict[str, tuple[str, str]] = {
    "PREFILL": (N_("prefill"), "steps"),
    "DECODE": (N_("decode"), "steps"),
    "TTFT": (N_("TTFT, time to first token"), ""),
    "TPOT": (N_("TPOT, time per output token"), ""),
    "TOKENS_PER_S": (N_("tokens a second"), ""),
    "TOKENS_PER_S_MEAN": (N_("tokens a second, the mean"), ""),
    "MBU": (N_("MBU, memory bandwidth utilisation"), ""),
    "MFU": (N_("MFU, model FLOPs utilisation"), ""),
    "EXPECTED_ERROR": (N_("prediction error"), ""),
    "KV_CACHE": (N_("KV cache"), "memory"),
    "ARITHMETIC_INTENSITY": (N_("arithmetic intensity"), "roofline"),
    "RIDGE": (N_("ridge point"), "roofline"),
    "EXPECTED": (N_("expected line"), ""),
    "ROOF": (N_("measured roof"), "machine"),
    "ROOF_OF_TIME": (N_("measured roof, least time"), "machine"),
    "FLOOR": (N_("datasheet floor"), ""),
    "WEIGHTS": (N_("weights"), ""),
    "STATE": (N_("recurrent state"), "memory"),
    "CONV": (N_("convolution state"), "memory"),
    "LOGITS": (N_("logits"), "steps"),
    "HEAD": (N_("head"), "steps"),
    "KNEE": (N_("knee"), "shapes"),
    "FLAT_START": (N_("flat start"), "shapes"),
    "FLAGGED": (N_("flagged step"), ""),
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
    "WEIGHT_FORMAT": (N_("weight format"), "levers"),
    "KV_FORMAT": (N_("KV format"), "levers"),
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
    "CLOCK": (N_("free-running steps"), ""),
    "LAUNCHES": (N_("CUDA graph"), ""),
    "FORETOLD": (N_("foretold"), "levers"),
}


# How charts and tables write some of them where they have no room for the whole name.
_ALSO: dict[str, tuple[str, ...]] = {
    "TOKENS_PER_S": (N_("tokens/s"),),
    "RIDGE": (N_("ridge"),),
    "EXPECTED": (N_("expected"),),
    "ROOF": (N_("roof"),),
    "FLOOR": (N_("floor"), N_("datasheet roof")),
    "FORETOLD": (N_("predicted"), N_("predicted only")),
    "MEASURED_STEPS": (N_("measured"),),
    "BYTES": (N_("bytes"), N_("bytes moved")),
    "HELD": (N_("state held"), N_("KV held")),
    "MOVED": (N_("moved a step"), N_("moved each step"), N_("state moved"), N_("KV moved")),
    "LATENT": (N_("compressed KV (latent)"),),
    "LATENT_FORM": (N_("absorbed"), N_("re-expanded")),
    "CLOCK": (N_("waited for"), N_("freely, greedy")),
    "LAUNCHES": (N_("op by op"), N_("as a graph")),
}


def _collected() -> dict[str, Term]:
    """All explanations of the lab; one that has no name of its own yet stands for itself, and a test fails."""
    explained = {name: text for name, text in vars(terms).items() if name.isupper() and isinstance(text, str)}
    found = {}
    for constant, text in explained.items():
        name, page = _NAMES.get(constant, ("", ""))
        found[constant.lower()] = Term(name, text, page, _ALSO.get(constant, ()))
    return found | OWN


TERMS = _collected()


def mentioned(t: Words, *texts: str) -> dict[str, dict[str, str]]:
    """The terms that texts of this language mark, for whoever draws them: id -> name and explanation."""
    found = {term for text in texts for _, term in MARK.findall(text)}
    return {term: {"name": t(TERMS[term].name), "text": t(TERMS[term].text)} for term in sorted(found)}
