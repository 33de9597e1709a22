"""Is this RunRequest one the engine can run? Checked by the broker and again by the worker.

Widget limits and command-line choices are conveniences; this is the gate. Knows the fields and their
limits; what only the model knows (context, vocabulary) comes in as numbers.
"""

from __future__ import annotations

import math

from engine import kernels
from engine.dense import fits_kernels
from engine.errors import N_, LabError
from engine.ledger.convention import LATENT_FORMS
from engine.record import RunRequest
from engine.spec import LatentAttention, Spec

DTYPES = {"float32": "fp32", "bfloat16": "bf16"}
"""torch's names for what the engine computes in, and the weight format each implies."""

PACKED_WEIGHTS = ("int8", "int4", "int4-g32", "int4-g64")
"""Formats for weights alone: int8 with a scale per row, int4 with one per 128, 32 or 64 weights."""
NARROWER = {"float32": ("bf16", *PACKED_WEIGHTS), "bfloat16": ()}
"""What weights can be held in while something wider is computed in."""
NARROWER_KV = {"float32": ("bf16", "int8"), "bfloat16": ()}
"""The same for a KV cache: int8 with a scale for each key and each value of a head."""

_WEIGHTS_REFUSED = (
    N_("The engine does not hold weights in {format}; choose one of: {known}."),
    N_("The engine does not hold weights in {format} when it computes in {dtype}; choose one of: {known}."),
)
_KV_REFUSED = (
    N_("The engine does not keep a KV cache in {format}; choose one of: {known}."),
    N_("The engine does not keep a KV cache in {format} when it computes in {dtype}; choose one of: {known}."),
)

CLOCKS = ("synchronised", "free-running")
LAUNCHES = ("eager", "graph", "compiled")
"""How steps are timed and started; what is not the first is for CUDA devices."""

MAX_PROMPT_CHARACTERS = 200_000
MAX_NEW_TOKENS = 100_000
MAX_BATCH = 256
MAX_SEED = 2**63 - 1
MAX_MODEL_CHARACTERS = 1_000


def check(request: RunRequest) -> None:
    """Raise a LabError for the first field that cannot be run; return nothing when all can."""
    check_text(request.prompt)
    if len(request.model) > MAX_MODEL_CHARACTERS:
        raise LabError(
            "The name of the model is {count} characters long; choose one of those listed.", count=len(request.model)
        )
    _whole(N_("The length to write"), request.max_new_tokens, 1, MAX_NEW_TOKENS)
    _whole(N_("The batch"), request.batch, 1, MAX_BATCH)
    _check_formats(request)
    _check_latent(request.latent)
    _check_sampling(request)
    _check_ways(request)


def check_text(prompt: str) -> None:
    """The prompt alone: not empty, not enormous, valid Unicode."""
    if not prompt.strip():
        raise LabError("The prompt is empty: write at least one word.")
    if len(prompt) > MAX_PROMPT_CHARACTERS:
        raise LabError(
            "The prompt has {count} characters; at most {limit} can be taken.",
            count=f"{len(prompt):,}",
            limit=f"{MAX_PROMPT_CHARACTERS:,}",
        )
    for position, character in enumerate(prompt):
        if "\ud800" <= character <= "\udfff":
            raise LabError(
                "Character {position} of the prompt is half of a character (a lone surrogate, {code}); "
                "remove it or paste the text again.",
                position=position + 1,
                code=f"U+{ord(character):04X}",
            )


def check_fits(prompt_tokens: int, context_limit: int) -> None:
    """The tokenized prompt against the positions the model was made for, one of them for the new token."""
    if prompt_tokens < 1:
        raise LabError("The prompt holds no token that this model knows; write at least one word.")
    if prompt_tokens > context_limit - 1:
        raise LabError(
            "The prompt is {tokens} tokens long; this model reads at most {limit}, one of them kept for writing.",
            tokens=f"{prompt_tokens:,}",
            limit=f"{context_limit:,}",
        )


def check_latent(form: str, model: str, spec: Spec) -> None:
    """The form of latent attention against the model: only one that has it has a choice."""
    has_latent = any(isinstance(layer.mixer, LatentAttention) for layer in spec.layers)
    if form != LATENT_FORMS[0] and not has_latent:
        raise LabError(
            "{model} has no latent attention, so there is nothing to run {form}: leave that choice out.",
            model=model,
            form=form,
        )


def check_kv(format_: str | None, model: str, spec: Spec, *, dtype: str, device: str | None = None) -> None:
    """A cache in fewer bits than are computed with against the model and the machine: only compiled kernels read one.

    dtype: what is computed in. device: where, once that is known.
    """
    if format_ in (None, DTYPES[dtype]):
        return
    if not fits_kernels(spec):
        raise no_choice_of_kv(str(format_), model)
    if dtype != "float32" or (device or "cpu").partition(":")[0] != "cpu":
        raise LabError(
            "A KV cache in {format} is computed with in float32, on a CPU; this run is in {dtype}, on {device}: leave "
            "the format of the cache out.",
            format=str(format_),
            dtype=dtype,
            device=device or "cpu",
        )
    if not kernels.usable():
        raise LabError(
            "A KV cache in {format} needs the compiled kernels: install numba, on a POSIX system, and leave "
            "ROOFLINE_LAB_KERNELS unset.",
            format=str(format_),
        )


def no_choice_of_kv(format_: str, model: str) -> LabError:
    """What to say of a cache in a format that this model's decoder does not keep."""
    return LabError(
        "{model} is not one of the dense decoders that the compiled kernels take, so its KV cache is held in what is "
        "computed in, and not in {format}: leave the format of the cache out.",
        model=model,
        format=format_,
    )


def check_device(request: RunRequest, kind: str) -> None:
    """How steps are timed and started against the kind of device ("cpu", "cuda" ...) that the run is on."""
    for asked, ways in ((request.clock, CLOCKS), (request.launches, LAUNCHES)):
        if asked != ways[0] and kind != "cuda":
            raise LabError(
                "{asked} is for CUDA devices, whose work is queued; this run is on {device}: choose {plain}.",
                asked=asked,
                device=kind,
                plain=ways[0],
            )


def check_memory(needed_bytes: int, available_bytes: int) -> None:
    """Weights and caches against the memory that is free, before anything is allocated."""
    if needed_bytes > available_bytes:
        raise LabError(
            "This run needs {needed} GB of memory for weights and KV cache and {available} GB are free: "
            "choose a smaller batch, a shorter length or a smaller model.",
            needed=f"{needed_bytes / 1e9:.2f}",
            available=f"{available_bytes / 1e9:.2f}",
        )


def _whole(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise LabError(
            "{what} is {value}; it has to be a whole number from {low} to {high}.",
            what=what,
            value=value,
            low=low,
            high=high,
        )


def choose_dtype(request: RunRequest, stored_format: str) -> str:
    """What to compute in: as asked, else what the asked formats imply, else the checkpoint's own.

    Weights or a cache in fewer bits than any type has imply float32, and so does either in fp32; a cache in bf16 alone
    says nothing of the rest.

    stored_format: the format of the checkpoint's weights ("fp32", "bf16", "fp16" ...). What this engine does
    not compute in is widened to float32, which holds every value of it.
    """
    if request.dtype is not None:
        return request.dtype
    if request.weights in PACKED_WEIGHTS or request.kv in ("int8", "fp32"):
        return "float32"
    format_ = request.weights or stored_format
    return next((dtype for dtype, implied in DTYPES.items() if implied == format_), "float32")


def _check_formats(request: RunRequest) -> None:
    if request.dtype is not None and request.dtype not in DTYPES:
        raise LabError(
            "{dtype} is not a type this engine computes in; choose one of {known}.",
            dtype=request.dtype,
            known=", ".join(DTYPES),
        )
    dtypes = DTYPES if request.dtype is None else {request.dtype: DTYPES[request.dtype]}
    for asked, narrower, alone, beside in (
        (request.weights, NARROWER, *_WEIGHTS_REFUSED),
        (request.kv, NARROWER_KV, *_KV_REFUSED),
    ):
        known = list(dict.fromkeys(each for dtype, plain in dtypes.items() for each in (plain, *narrower[dtype])))
        if asked is not None and asked not in known:
            raise LabError(
                alone if request.dtype is None else beside,
                format=asked[:20],
                dtype=request.dtype or "",
                known=", ".join(known),
            )


def _check_latent(form: str) -> None:
    if form not in LATENT_FORMS:
        raise LabError(
            "{form} is not a form of latent attention; choose one of {known}.",
            form=form,
            known=", ".join(LATENT_FORMS),
        )


def _check_ways(request: RunRequest) -> None:
    for asked, ways in ((request.clock, CLOCKS), (request.launches, LAUNCHES)):
        if asked not in ways:
            raise LabError("{asked} is none of {known}.", asked=asked, known=", ".join(ways))
    if request.clock != CLOCKS[0] and request.temperature > 0:
        raise LabError(
            "A free-running run never looks at its tokens, so it takes the likeliest each time: choose temperature 0."
        )


def _check_sampling(request: RunRequest) -> None:
    _within(N_("The temperature"), request.temperature, 0.0, 100.0)
    _within("top-p", request.top_p, 0.0, 1.0)
    _within("min-p", request.min_p, 0.0, 1.0)
    if request.top_p == 0.0:
        raise LabError("top-p is 0, which leaves no token to choose from; it has to be above 0 and at most 1.")
    _whole("top-k", request.top_k, 0, 10_000_000)
    _whole(N_("The seed"), request.seed, 0, MAX_SEED)


def _within(what: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise LabError(
            "{what} is {value}; it has to be a number from {low:g} to {high:g}.",
            what=what,
            value=value,
            low=low,
            high=high,
        )
