"""Feed-forward parts with the activations other families use: gated or not, GELU, squared ReLU, gpt-oss's clamp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine import spec as specs
from engine.errors import LabError
from engine.model.linear import Linear
from engine.model.reader import Reader


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


CURVES: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": _gelu_tanh,
    "gelu_pytorch_tanh": _gelu_tanh,
    "relu2": _relu_squared,
    "silu": F.silu,
    "swish": F.silu,
}


@dataclass(frozen=True, slots=True)
class Activation:
    """curve(gate) * up where gated, with the gate's columns before those of up; else curve(up) alone.

    clamp: gpt-oss holds gate below it and up within it, and computes gate * sigmoid(swish * gate) * (up + 1).
    """

    curve: Callable[[Tensor], Tensor]
    gated: bool
    clamp: float | None = None
    swish: float = 1.0

    @classmethod
    def of(cls, name: str, *, gated: bool, recipe: specs.Recipe) -> Activation:
        """The activation a config names.

        Raises:
            LabError: it is not one the engine computes.
        """
        if name not in CURVES:
            raise LabError(
                "The config asks for the activation {activation}; this engine computes {known}.",
                activation=name,
                known=", ".join(CURVES),
            )
        return cls(CURVES[name], gated, recipe.clamp, recipe.swish)

    def __call__(self, wide: Tensor) -> Tensor:
        """[rows, 2f] -> [rows, f] where gated, else [rows, f] -> [rows, f]."""
        if not self.gated:
            return self.curve(wide)
        gate, up = wide.chunk(2, dim=-1)
        if self.clamp is None:
            return self.curve(gate).mul_(up)
        gate, up = gate.clamp(max=self.clamp), up.clamp(-self.clamp, self.clamp)
        return (up + 1) * gate * (gate * self.swish).sigmoid()


@dataclass(frozen=True, slots=True)
class FeedForward:
    """down(activation(up x)): every token passes all of it."""

    up: Linear
    down: Linear
    activation: Activation

    @classmethod
    def read(cls, spec: specs.Mlp, part: Reader, recipe: specs.Recipe) -> FeedForward:
        """Take the weights directly under `part`: gate_proj, up_proj, down_proj."""
        names = ("gate_proj", "up_proj") if spec.gated else ("up_proj",)
        return cls(
            up=part.linear(*names, bias=spec.bias),
            down=part.linear("down_proj", bias=spec.bias),
            activation=Activation.of(spec.activation, gated=spec.gated, recipe=recipe),
        )

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, h] -> [rows, h]."""
        return self.down(self.activation(self.up(x)))

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [*self.up.tensors, *self.down.tensors]
