"""From a name or a folder to a model in memory, ready for its first prompt."""

from __future__ import annotations

from pathlib import Path

import torch

from engine import checkpoint, kernels, random_shapes
from engine import device as devices
from engine.dense import fits_kernels
from engine.errors import LabError
from engine.ledger import Formats, resident
from engine.model import choosing, choosing_steps, supported
from engine.model.decoder import Decoder
from engine.model.phases import Model
from engine.request import DTYPES as WEIGHT_FORMATS
from engine.request import check_kv
from engine.source import Source
from engine.spec import Spec
from engine.weights import tensors as stored_tensors

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(
    source: Source | str | Path,
    device: str = "cpu",
    dtype: str = "float32",
    max_tokens: int | None = None,
    weights: str | None = None,
    kv: str | None = None,
) -> Model:
    """Load a decoder; what the lab can fetch is fetched first. The caches are allocated at the first prefill.

    Args:
        source: what `engine.checkpoint` made of a name, or the name itself: one of the lab's own models, a folder in
            Hugging Face layout, a name on the Hub, or `random:<catalogue id>[@layers=N]`.
        device: a torch device name.
        dtype: of weights, activations and cache: "float32" or "bfloat16".
        max_tokens: positions a context may have; None takes the model's own limit.
        weights: what matrices are held in where it is not `dtype`: "bf16", or one of `engine.model.packed.GROUPS`.
        kv: what keys and values are held in where it is not `dtype`: "bf16" or "int8".

    Raises:
        LabError: a source, device, dtype, format or length that cannot be used, weights that do not fit the config, or
            a model that does not fit into memory.
    """
    if dtype not in DTYPES:
        raise LabError("The dtype {dtype} is not one of {known}.", dtype=dtype, known=", ".join(DTYPES))
    place = devices.choose(device)
    found = source if isinstance(source, Source) else checkpoint.ensure(str(source))
    supported.check(found.spec)
    own = WEIGHT_FORMATS[dtype]
    check_kv(kv, found.id, found.spec, dtype=dtype, device=place.type)
    if weights not in (None, own):
        _check_kernels(found.spec, place, dtype, str(weights))
    _check_memory(found, Formats.engine(own, weights), place)
    tensors = stored_tensors(found)
    if weights in (None, own) and kv in (None, own):
        model = Model.from_tensors(found.spec, tensors, place, DTYPES[dtype], max_tokens)
    else:
        model = Decoder.from_tensors(found.spec, tensors, place, DTYPES[dtype], max_tokens, weights, kv)
    choosing.settle(model.linears, DTYPES[dtype])
    if isinstance(model, Decoder) and model.compiled is not None:
        choosing_steps.settle(model.compiled)
    return model


def _check_kernels(spec: Spec, device: torch.device, dtype: str, format_: str) -> None:
    """Refuse a format that would be spelled out for every step: its bytes would not be those that are read."""
    if dtype != "float32" or device.type != "cpu" or not supported.is_plain(spec):
        raise LabError(
            "Weights in {format} are computed with in float32, on a CPU, in a dense decoder; this is {dtype} on "
            "{device}, {family}.",
            format=format_,
            dtype=dtype,
            device=str(device),
            family=spec.model_type,
        )
    if not kernels.usable():
        raise LabError(
            "Weights in {format} need the compiled kernels: install numba, on a POSIX system, and leave "
            "ROOFLINE_LAB_KERNELS unset.",
            format=format_,
        )
    if not fits_kernels(spec):
        raise LabError("Weights in {format} need sizes that 32 divides; this model's are not.", format=format_)


def _check_memory(source: Source, formats: Formats, device: torch.device) -> None:
    """Refuse what cannot fit: a CPU that runs out of memory stops the process and says nothing."""

    def needs(spec: Spec) -> int:
        return int(resident(spec, batch=0, formats=formats).weights)

    needed, free = needs(source.spec), devices.free_bytes(device)
    random_shapes.check_fits(source.id, source.spec, needs, free)
    if needed > free:
        raise LabError(
            "The weights take {needed} GB of memory and {free} GB are free.",
            needed=f"{needed / 1e9:.2f}",
            free=f"{free / 1e9:.2f}",
        )
