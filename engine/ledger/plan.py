"""What every step of one model in one set of formats reads: its matrices and vectors, gathered by op.

Made once per model and formats, so that counting a step is a few dozen multiplications.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from engine.ledger.formats import Formats
from engine.spec import Layer, Spec, Weight


@dataclass(frozen=True, slots=True)
class Stored:
    """The weights one op reads: its matrices side by side as one [n, k], and the vectors that belong to it.

    For experts everything is that of one expert; `copies` says how many there are.
    """

    k: int
    n: int
    matrix_bytes: int
    vector_parameters: int
    vector_bytes: int
    copies: int = 1

    @property
    def bytes(self) -> int:
        """Bytes of the matrices and the vectors."""
        return self.matrix_bytes + self.vector_bytes


Ops = dict[str, Stored]


@dataclass(frozen=True)
class Plan:
    """The stored weights of a model by op: per distinct layer (with how often it occurs), and outside the layers."""

    layers: tuple[tuple[Layer, int, Ops], ...]
    outer: Ops
    trunk_bytes: int


@lru_cache(maxsize=512)
def plan(spec: Spec, formats: Formats) -> Plan:
    """The plan of a model in these formats."""
    layers = tuple((layer, count, _by_op(spec.layer_weights(layer), spec, formats)) for layer, count in spec.groups)
    # A tied head is read as the head's matrix, and stored once, as the embedding.
    outer = _by_op((*spec.outer_weights, *((spec.head,) if spec.tied else ())), spec, formats)
    stored = sum(formats.weight_bytes(weight, spec) for weight in spec.outer_weights)
    stored += sum(
        formats.weight_bytes(weight, spec) * count
        for layer, count in spec.groups
        for weight in spec.layer_weights(layer)
    )
    return Plan(layers, outer, stored)


def _by_op(weights: Iterable[Weight], spec: Spec, formats: Formats) -> Ops:
    gathered: dict[str, list[Weight]] = {}
    for weight in weights:
        gathered.setdefault(weight.op, []).append(weight)
    return {op: _stored(found, spec, formats) for op, found in gathered.items()}


def _stored(weights: list[Weight], spec: Spec, formats: Formats) -> Stored:
    matrices = [weight for weight in weights if weight.use in ("matrix", "table")]
    vectors = [weight for weight in weights if weight.use not in ("matrix", "table")]
    copies = weights[0].copies
    return Stored(
        k=matrices[0].shape[-1] if matrices else 0,
        n=sum(weight.shape[0] for weight in matrices),
        matrix_bytes=sum(formats.weight_bytes(weight, spec) for weight in matrices) // copies,
        vector_parameters=sum(weight.parameters for weight in vectors) // copies,
        vector_bytes=sum(formats.weight_bytes(weight, spec) for weight in vectors) // copies,
        copies=copies,
    )
