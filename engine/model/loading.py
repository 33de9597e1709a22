"""From a name or a folder to a model in memory, ready for its first prompt."""

from __future__ import annotations

from pathlib import Path

import torch

from engine import checkpoint, random_shapes, weights
from engine import device as devices
from engine.checkpoint import Source
from engine.errors import LabError
from engine.model import supported
from engine.model.phases import Model
from engine.spec import Spec

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load(
    source: Source | str | Path, device: str = "cpu", dtype: str = "float32", max_tokens: int | None = None
) -> Model:
    """Load a decoder; what the lab can fetch is fetched first. The caches are allocated at the first prefill.

    Args:
        source: what `engine.checkpoint` made of a name, or the name itself: one of the lab's own models, a folder in
            Hugging Face layout, a name on the Hub, or `random:<catalogue id>[@layers=N]`.
        device: a torch device name.
        dtype: of weights, activations and cache: "float32" or "bfloat16".
        max_tokens: positions a context may have; None takes the model's own limit.

    Raises:
        LabError: a source, device, dtype or length that cannot be used, weights that do not fit the config, or a
            model that does not fit into memory.
    """
    if dtype not in DTYPES:
        raise LabError("The dtype {dtype} is not one of {known}.", dtype=dtype, known=", ".join(DTYPES))
    place = devices.choose(device)
    found = source if isinstance(source, Source) else checkpoint.ensure(str(source))
    supported.check(found.spec)
    _check_memory(found, DTYPES[dtype], place)
    return Model.from_tensors(found.spec, weights.tensors(found), place, DTYPES[dtype], max_tokens)


def _check_memory(source: Source, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse what cannot fit: a CPU that runs out of memory stops the process and says nothing."""

    def needs(spec: Spec) -> int:
        return spec.parameters.trunk * dtype.itemsize

    needed, free = needs(source.spec), devices.free_bytes(device)
    random_shapes.check_fits(source.id, source.spec, needs, free)
    if needed > free:
        raise LabError(
            "The weights take {needed} GB of memory and {free} GB are free.",
            needed=f"{needed / 1e9:.2f}",
            free=f"{free / 1e9:.2f}",
        )
