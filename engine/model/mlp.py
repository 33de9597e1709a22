"""The dense feed-forward part of a layer: gate and up in one matrix, SwiGLU, down."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine import spec as specs
from engine.model import ops
from engine.model.linear import Linear
from engine.model.reader import Reader


@dataclass(frozen=True, slots=True)
class Mlp:
    """down(silu(gate x) * up x)."""

    gate_up: Linear
    down: Linear

    @classmethod
    def read(cls, spec: specs.Mlp, reader: Reader) -> Mlp:
        """Take one layer's weights, whose names begin with "mlp."."""
        part = reader.under("mlp.")
        return cls(part.linear("gate_proj", "up_proj", bias=spec.bias), part.linear("down_proj", bias=spec.bias))

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, h] -> [rows, h]."""
        return self.down(ops.swiglu_(self.gate_up(x)))

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [*self.gate_up.tensors, *self.down.tensors]
