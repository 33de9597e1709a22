"""Which weights were measured, and in which formats, as every record says it. Knows no torch."""

from __future__ import annotations

from engine.ledger import Formats
from engine.record import ModelFacts
from engine.source import Source


def model_facts(source: Source, dtype: str, formats: Formats) -> ModelFacts:
    """The facts of a source computed in `dtype` (torch's name) with its matrices and caches in `formats`."""
    return ModelFacts(
        id=source.id,
        weights=source.weights,
        weights_hash=source.weights_hash(),
        dtype=dtype,
        weight_format=formats.weights,
        kv_format=formats.kv,
        parameters=source.spec.parameters.checkpoint,
        revision=source.revision,
        stored_format=source.stored_format,
        notes=source.notes(formats.plain_format),
    )
