"""The weight matrices of a model by name, what each takes in a format, and what the roof predicts of it.

As a checkpoint stores them (q, k and v apart) and as this engine multiplies them (fused). From a Spec alone: no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from engine import hardware
from engine.ceilings import Ceilings
from engine.errors import LabError
from engine.experiment import Predicted
from engine.hardware_device import Device
from engine.judging import roof_of
from engine.ledger import PLAIN_BYTES, WEIGHT_LAYOUTS
from engine.roofline import Roof
from engine.shapes import ShapePoint, ShapeRequest
from engine.spec import Spec, Weight

FORMATS = {"fp32": "fp32", "bf16": "bf16", "int8": "fp32", "int4": "fp32"}
"""What a matrix can be held in here, and what its rows are then computed in."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """k numbers in, n out. count: how often the model has it (each expert counts). parts: what it is made of."""

    name: str
    k: int
    n: int
    count: int
    parts: tuple[str, ...] = ()

    def bytes_in(self, weights: str) -> int:
        """Bytes of the stored matrix, scales included."""
        return WEIGHT_LAYOUTS[weights].size(self.n, self.k)

    def moved_bytes(self, rows: int, weights: str) -> int:
        """The matrix once, and the rows that come in and go out."""
        return self.bytes_in(weights) + rows * (self.k + self.n) * PLAIN_BYTES[FORMATS[weights]]

    def flops(self, rows: int) -> int:
        """Two for each weight and row."""
        return 2 * rows * self.k * self.n


@lru_cache(maxsize=64)
def of(spec: Spec) -> dict[str, Matrix]:
    """Every distinct matrix by name, the stored ones first, then those that the engine fuses, the head last."""
    found: dict[str, Matrix] = {}
    fused: dict[str, Matrix] = {}
    for layer, count in spec.groups:
        stored = [weight for weight in spec.layer_weights(layer) if weight.use == "matrix" and len(weight.shape) == 2]
        for weight in stored:
            _add(found, _stored(weight, count))
        for op in dict.fromkeys(weight.op for weight in stored):
            parts = [weight for weight in stored if weight.op == op]
            # Only matrices over the same input lie side by side in one product.
            if len(parts) > 1 and len({weight.shape[1] for weight in parts}) == 1:
                _add(fused, _fused(op, parts, count))
    head = spec.head
    _add(fused, Matrix("lm_head", head.shape[-1], head.shape[0], 1))
    return found | fused


def named(spec: Spec, name: str) -> Matrix:
    """One matrix of a model.

    Raises:
        LabError: the model has none of that name; the sentence lists those it has.
    """
    known = of(spec)
    if name not in known:
        raise LabError(
            "There is no matrix {name} in this model; it has {known}.", name=name[:60], known=", ".join(known)
        )
    return known[name]


def check_format(weights: str) -> None:
    """Raise a LabError for a format that nothing here multiplies."""
    if weights not in FORMATS:
        raise LabError(
            "{weights} is not a format this engine multiplies; choose one of {known}.",
            weights=weights[:40],
            known=", ".join(FORMATS),
        )


def needed_bytes(matrix: Matrix, weights: str, most_rows: int) -> int:
    """Memory a measurement takes: what the largest product reads and writes, and packed weights spelled out for it."""
    spelled_out = 0 if weights in PLAIN_BYTES else PLAIN_BYTES["fp32"] * matrix.k * matrix.n
    return matrix.moved_bytes(most_rows, weights) + spelled_out


def check_memory(spec: Spec, matrix: Matrix, request: ShapeRequest, free_bytes: int) -> None:
    """Refuse what does not fit, and name what would: another format, fewer rows, or another matrix of the model.

    Raises:
        LabError: one sentence with both numbers and the way out.
    """
    most = max(request.rows)
    needed = needed_bytes(matrix, request.weights, most)
    if needed <= free_bytes:
        return
    said = {
        "matrix": matrix.name,
        "shape": f"{matrix.k:,} × {matrix.n:,}",
        "weights": request.weights,
        "needed": f"{needed / 1e9:.2f}",
        "free": f"{free_bytes / 1e9:.2f}",
    }
    smaller = [name for name in FORMATS if needed_bytes(matrix, name, most) <= free_bytes]
    if smaller:
        raise LabError(
            "{matrix} ({shape}, {weights}) needs {needed} GB and {free} GB are free: in {fits} it would fit.",
            fits=" / ".join(smaller),
            **said,
        )
    left = free_bytes - needed_bytes(matrix, request.weights, 0)
    rows = left // ((matrix.k + matrix.n) * PLAIN_BYTES[FORMATS[request.weights]])
    if rows >= 1:
        raise LabError(
            "{matrix} ({shape}, {weights}) with {most} rows needs {needed} GB and {free} GB are free: "
            "up to {rows} rows would fit.",
            most=most,
            rows=int(rows),
            **said,
        )
    others = [each for each in of(spec).values() if needed_bytes(each, request.weights, most) <= free_bytes]
    if others:
        largest = max(others, key=lambda each: each.k * each.n)
        raise LabError(
            "{matrix} ({shape}, {weights}) needs {needed} GB and {free} GB are free: the largest matrix of this "
            "model that fits is {other} ({other_shape}).",
            other=largest.name,
            other_shape=f"{largest.k:,} × {largest.n:,}",
            **said,
        )
    raise LabError(
        "{matrix} ({shape}, {weights}) needs {needed} GB and {free} GB are free: choose a smaller model.", **said
    )


def predict(matrix: Matrix, weights: str, rows: Iterable[int], ceilings: Ceilings) -> list[ShapePoint]:
    """The points of a measurement to come, by rows: bytes, FLOPs and the roof of each, from ceilings alone."""
    device = hardware.of(ceilings.device)
    return [_point(matrix, weights, each, ceilings, device) for each in sorted(set(rows))]


def roof_ns(matrix: Matrix, weights: str, rows: int, ceilings: Ceilings) -> float:
    """The larger of reading and computing at this machine's ceilings, in nanoseconds.

    A format whose rate was not measured is held to its bytes alone.
    """
    return roof_of(ceilings, FORMATS[weights], matrix.flops(rows), matrix.moved_bytes(rows, weights)).time_ns


def _point(matrix: Matrix, weights: str, rows: int, ceilings: Ceilings, device: Device | None) -> ShapePoint:
    moved, flops = matrix.moved_bytes(rows, weights), matrix.flops(rows)
    peak = device.peak_flops_per_s(FORMATS[weights]) if device else None
    datasheet = Roof(peak, device.bandwidth_bytes_per_s).least_ns(flops, moved) if device and peak else None
    return ShapePoint(
        rows=rows,
        flops=flops,
        moved_bytes=moved,
        predicted_ns=Predicted(datasheet=datasheet, measured_roof=roof_ns(matrix, weights, rows, ceilings)),
    )


def _stored(weight: Weight, count: int) -> Matrix:
    n, k = weight.shape
    return Matrix(weight.name.removesuffix(".weight"), k, n, count * weight.copies)


def _fused(op: str, parts: list[Weight], count: int) -> Matrix:
    names = tuple(weight.name.removesuffix(".weight") for weight in parts)
    n = sum(weight.shape[0] for weight in parts)
    return Matrix(op, parts[0].shape[1], n, count * parts[0].copies, names)


def _add(found: dict[str, Matrix], matrix: Matrix) -> None:
    """Layers of one model may differ: a second shape under the same name carries its shape in its name."""
    name = matrix.name
    if name in found and (found[name].k, found[name].n) != (matrix.k, matrix.n):
        name = f"{name} {matrix.k}x{matrix.n}"
    before = found[name].count if name in found else 0
    found[name] = Matrix(name, matrix.k, matrix.n, before + matrix.count, matrix.parts)
