"""The conventions a step can be counted under: named bundles of switches, one ledger for all of them.

`lesson` reproduces the lesson's printed numbers; `engine` counts what this engine does; `transformers` counts what
transformers' plain torch path does, for comparing with real tensors and with torch's FlopCounterMode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from engine.errors import N_, LabError, Sentence

LATENT_FORMS = ("absorbed", "re-expanded")
"""How this engine's decode can read the cache of latent attention; the first is the default."""


@dataclass(frozen=True, slots=True)
class Convention:
    """Switches of the ledger.

    head: the head at "all" prompt positions, or only the "last".
    pairs: prefill attention pairs - "half_square" T^2/2, "causal" T(T+1)/2, or the full "square" as unfused code does.
    attends_new: a decode step's attention FLOPs include the new token, or only the cached ones.
    vector_flops: two FLOPs for every non-matrix parameter (the lesson's 2N), instead of none.
    recurrence: FLOPs of the recurrent state's update - "none", token by token, or in "chunked" prefill.
    hidden_norms, embedding_rows, logits, decode_kv_write: whether those bytes count.
    conv: columns of the conv state that are kept ("none", "K-1" or "K").
    window: positions a window cache keeps.
    latent: how latent attention runs - "absorbed", "expanded" (cache spelled out per head) or "re-expanded" each step.
    usable_memory: capacity within the memory that can be used, where that is known, instead of as marketed.
    """

    name: str
    head: Literal["all", "last"]
    pairs: Literal["half_square", "causal", "square"]
    attends_new: bool
    vector_flops: bool
    recurrence: Literal["none", "recurrent", "chunked"]
    hidden_norms: bool
    embedding_rows: bool
    logits: bool
    decode_kv_write: bool
    conv: Literal["none", "K-1", "K"]
    window: Literal["W", "W-1"] = "W"
    latent: Literal["absorbed", "expanded", "re-expanded"] = "absorbed"
    usable_memory: bool = False

    def conv_columns(self, kernel: int) -> int:
        """Columns of the conv state that are kept for a kernel of this length."""
        return {"none": 0, "K-1": kernel - 1, "K": kernel}[self.conv]


LESSON = Convention(
    name="lesson",
    head="all",
    pairs="half_square",
    attends_new=False,
    vector_flops=True,
    recurrence="none",
    hidden_norms=False,
    embedding_rows=False,
    logits=False,
    decode_kv_write=False,
    conv="none",
)
ENGINE = Convention(
    name="engine",
    head="last",
    pairs="causal",
    attends_new=True,
    vector_flops=False,
    recurrence="recurrent",
    hidden_norms=True,
    embedding_rows=True,
    logits=True,
    decode_kv_write=True,
    conv="K-1",
    usable_memory=True,
)
TRANSFORMERS = Convention(
    name="transformers",
    head="all",
    pairs="square",
    attends_new=True,
    vector_flops=False,
    recurrence="recurrent",
    hidden_norms=True,
    embedding_rows=True,
    logits=True,
    decode_kv_write=True,
    conv="K",
    window="W-1",
    latent="re-expanded",
)
EXPLAINED = {
    "lesson": N_(
        "Counted as the lesson counts: scores for every position of the prompt; a token of the prompt attends to half "
        "of the prompt, on average; the arithmetic of recurrent states is left out, and so are the bytes of small "
        "things (norms, convolution states, scores) and of the entry that a decode step adds to the cache; memory is "
        "what the card is sold with."
    ),
    "engine": N_(
        "Counted as this engine works: scores for the last position only; each token attends to itself and to all "
        "before it; the arithmetic of recurrent states is counted, and every byte that a step reads or writes, small "
        "things included; memory is what can be used of it, where that is known."
    ),
    "transformers": N_(
        "What transformers' plain path does: every pair of the attention square, the head at every position, latent "
        "attention expanded anew each step, K conv columns and W-1 window positions kept."
    ),
}
CONVENTIONS = {convention.name: convention for convention in (LESSON, ENGINE, TRANSFORMERS)}


def explain(name: str) -> Sentence:
    """One sentence on what a convention counts, for a page to show beside its numbers.

    Raises:
        LabError: no convention of that name.
    """
    return Sentence(template=EXPLAINED[named(name).name])


def with_latent(form: Literal["absorbed", "re-expanded"]) -> Convention:
    """This engine's convention for decode steps with latent attention in this form."""
    return replace(ENGINE, latent=form)


def named(convention: str | Convention) -> Convention:
    """A convention by its name; one given as such is returned.

    Raises:
        LabError: no convention of that name.
    """
    if isinstance(convention, Convention):
        return convention
    if convention not in CONVENTIONS:
        raise LabError(
            "There is no convention {name}; known are {known}.", name=convention, known=", ".join(CONVENTIONS)
        )
    return CONVENTIONS[convention]
