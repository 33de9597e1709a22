"""One layer of any family: which class runs which mixer and which feed-forward part, and what stands around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from torch import Tensor

from engine import spec as specs
from engine.hybrid_cache import Views
from engine.model import ops
from engine.model.attention import Step
from engine.model.experts import Experts
from engine.model.feed_forward import FeedForward
from engine.model.gated_delta import GatedDeltaNet
from engine.model.kimi_delta import KimiDelta
from engine.model.latent import Form, LatentAttention
from engine.model.mamba2 import Mamba2
from engine.model.reader import Reader
from engine.model.varied_attention import VariedAttention


class Mixer(Protocol):
    """What lets positions of a sequence see each other."""

    def __call__(self, x: Tensor, step: Step, memory: Any, /) -> Tensor:
        """[B*T, h] -> [B*T, h]; what is to be remembered goes to `memory`."""

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm over the hidden size: RMS, or layer norm where there is a bias."""

    weight: Tensor
    bias: Tensor | None
    eps: float

    @classmethod
    def read(cls, spec: specs.Spec, reader: Reader, name: str) -> Norm:
        """Take the norm called `name`. Where a family multiplies by 1 + w, that is what is kept."""
        weight = reader.vector(f"{name}.weight").add_(1.0 if spec.recipe.zero_centred else 0.0)
        return cls(weight, reader.vector(f"{name}.bias") if spec.norm.bias else None, spec.norm.eps)

    def __call__(self, x: Tensor) -> Tensor:
        """[rows, h] -> [rows, h], a fresh tensor."""
        if self.bias is None:
            return ops.rms_norm(x, self.weight, self.eps)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]


ReadMixer = Callable[[Any, Reader, specs.Spec], Mixer]
MIXERS: dict[type, ReadMixer] = {
    specs.Attention: lambda part, reader, spec: VariedAttention.read(part, reader, spec.norm.eps, spec.recipe),
    specs.GatedDeltaNet: lambda part, reader, spec: GatedDeltaNet.read(part, reader, spec.norm.eps),
    specs.KimiDelta: lambda part, reader, spec: KimiDelta.read(part, reader, spec.norm.eps),
    specs.LatentAttention: lambda part, reader, spec: LatentAttention.read(part, reader, spec.recipe),
    specs.Mamba2: lambda part, reader, spec: Mamba2.read(part, reader, spec.norm.eps, spec.recipe),
}


@dataclass(frozen=True, slots=True)
class Around:
    """What stands around one part of a layer: x + scale * after(part(before(x))). Only Gemma has an `after`."""

    before: Norm
    after: Norm | None
    scale: float

    def add(self, x: Tensor, update: Tensor) -> Tensor:
        """The residual, in place."""
        return x.add_(update if self.after is None else self.after(update), alpha=self.scale)

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [*self.before.tensors, *([] if self.after is None else self.after.tensors)]


@dataclass(frozen=True, slots=True)
class HybridLayer:
    """A mixer and a feed-forward part, each with what stands around it; Nemotron-H has only one of them in a layer."""

    mixing: tuple[Mixer, Around] | None
    feeding: tuple[FeedForward | Experts, Around] | None
    rotary: specs.Rotary | None

    @classmethod
    def read(cls, layer: specs.Layer, reader: Reader, spec: specs.Spec) -> HybridLayer:
        """Take the weights whose names begin with "model.layers.N."."""

        def around(before: str, after: str | None) -> Around:
            norms = Norm.read(spec, reader, before), Norm.read(spec, reader, after) if after else None
            return Around(*norms, spec.recipe.residual_scale)

        mixing_norms, feeding_norms = _norm_names(layer, spec)
        mixing, feeding = None, None
        if layer.mixer is not None:
            mixing = MIXERS[type(layer.mixer)](layer.mixer, reader, spec), around(*mixing_norms)
        if layer.feed_forward is not None:
            feeding = _read_feed_forward(layer.feed_forward, reader, spec), around(*feeding_norms)
        return cls(mixing, feeding, getattr(layer.mixer, "rotary", None))

    def __call__(self, x: Tensor, step: Step, memory: Views, distinct: list[int]) -> Tensor:
        """[B*T, h], changed in place; a mixture of experts appends how many of them it hit to `distinct`."""
        if self.mixing is not None:
            mixer, around = self.mixing
            x = around.add(x, mixer(around.before(x), step, memory))
        if self.feeding is not None:
            part, around = self.feeding
            normed = around.before(x)
            x = around.add(x, part(normed, distinct) if isinstance(part, Experts) else part(normed))
        return x

    def with_latent_form(self, form: Form) -> HybridLayer:
        """The same layer, its latent attention (if that is what it has) reading the cache in this form."""
        mixer, around = self.mixing or (None, None)
        if around is None or not isinstance(mixer, LatentAttention):
            return self
        return replace(self, mixing=(replace(mixer, form=form), around))

    @property
    def experts(self) -> Experts | None:
        """The mixture of experts in this layer, if there is one."""
        part = None if self.feeding is None else self.feeding[0]
        return part if isinstance(part, Experts) else None

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        parts = [part for pair in (self.mixing, self.feeding) if pair is not None for part in pair]
        return [tensor for part in parts for tensor in part.tensors]


def _norm_names(layer: specs.Layer, spec: specs.Spec) -> tuple[tuple[str, str | None], tuple[str, str | None]]:
    """(before, after) of the mixer and of the feed-forward part, as `Spec.layer_norms` names them."""
    if layer.mixer is None or layer.feed_forward is None:
        return ("norm", None), ("norm", None)
    if spec.norm.sandwich:
        return (
            ("input_layernorm", "post_attention_layernorm"),
            ("pre_feedforward_layernorm", "post_feedforward_layernorm"),
        )
    return ("input_layernorm", None), ("post_attention_layernorm", None)


def _read_feed_forward(part: specs.Mlp | specs.Experts, reader: Reader, spec: specs.Spec) -> FeedForward | Experts:
    if isinstance(part, specs.Experts):
        return Experts.read(part, reader, spec.recipe)
    return FeedForward.read(part, reader.under("mlp."), spec.recipe)
