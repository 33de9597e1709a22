"""A decoder whose layers may be of any kind: recurrent, windowed, latent, with experts, in any order.

The same two phases as the dense decoder. Beside the logits it can say which part of the model a step has read:
`experts_hit` is the router's real choice in the last step.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import torch
from torch import Tensor

from engine import spec as specs
from engine.hybrid_cache import HybridCache
from engine.model import ops, supported
from engine.model.attention import Step
from engine.model.latent import Form
from engine.model.layers import HybridLayer, Norm
from engine.model.linear import Linear, linears_in
from engine.model.names import Canonical
from engine.model.phases import Model, context_limit
from engine.model.reader import Reader
from engine.model.rotary import RotaryTable
from engine.random_weights import RandomTensors


class HybridDecoder(Model):
    """A decoder of any family with its cache."""

    cache: HybridCache

    def __init__(self, spec: specs.Spec, reader: Reader, max_tokens: int) -> None:
        self.spec = spec
        self.device = reader.device
        self.dtype = reader.dtype
        self.max_tokens = max_tokens
        self._embedding = reader.vector("model.embed_tokens.weight")
        self._positions = reader.vector("model.embed_positions.weight") if spec.positions else None
        # Before the layers: while it is copied it is in memory twice, and then it is better to hold little else.
        self._head = Linear.of(self._embedding) if spec.tied else reader.linear("lm_head", bias=False)
        self._layers = [
            HybridLayer.read(layer, reader.under(f"model.layers.{index}."), spec)
            for index, layer in enumerate(spec.layers)
        ]
        self._norm = Norm.read(spec, reader, "model.norm")
        self._distinct: list[int] = []
        self._allocate(batch=0, positions=0)

    @classmethod
    @torch.inference_mode()
    def from_tensors(
        cls,
        spec: specs.Spec,
        tensors: Mapping[str, Tensor],
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        max_tokens: int | None = None,
    ) -> HybridDecoder:
        """Build from tensors named as the family's checkpoints name them (random ones: as the readers ask for them).
        They are copied; none is kept.

        Raises:
            LabError: the family is not supported, a tensor is missing, or `max_tokens` is beyond the model's context.
        """
        supported.check(spec)
        named = tensors if isinstance(tensors, RandomTensors) else Canonical(tensors, spec)
        reader = Reader(named, dtype, torch.device(device))
        return cls(spec, reader, context_limit(spec, max_tokens))

    def use_latent_form(self, form: Form) -> None:
        """How latent attention reads its cache in decode from now on; `engine.model.latent` says what the two do."""
        self._layers = [layer.with_latent_form(form) for layer in self._layers]

    def _begin(self) -> None:
        """A step begins: no expert has been read yet."""
        self._distinct = []

    def _read(self, ids: Tensor) -> Tensor:
        """One pass of the layers over new tokens [B, T] behind what the cache holds; the last position's, [B, h]."""
        start, (batch, tokens) = self.cache.length, ids.shape
        memories = self.cache.extend(tokens)
        steps = {
            rotary: Step(batch, tokens, *table.at(start, start + tokens)) for rotary, table in self._rotaries.items()
        }
        unturned = Step(batch, tokens, self._norm.weight[:0], self._norm.weight[:0])
        distinct: list[int] = []

        x = self._embed(ids, start)
        for layer, memory in zip(self._layers, memories, strict=True):
            step = steps[layer.rotary] if layer.rotary is not None else unturned
            x = layer(x, step, memory, distinct)
        self._distinct = [sum(pair) for pair in zip_longest(self._distinct, distinct, fillvalue=0)]
        # Only the last position's logits are ever used; the head is the model's largest matrix.
        return x.view(batch, tokens, -1)[:, -1]

    def _logits(self, hidden: Tensor) -> Tensor:
        """The final norm and the head: [B, h] -> [B, V], fp32."""
        logits = self._head(self._norm(hidden)).float()
        return logits if self.spec.recipe.logits_divisor == 1 else logits / self.spec.recipe.logits_divisor

    def _embed(self, ids: Tensor, start: int) -> Tensor:
        x = ops.embed(ids, self._embedding)
        if self.spec.recipe.embedding_scale != 1:
            # The scale is rounded to the model's dtype first, as in the families that use one.
            x.mul_(torch.tensor(self.spec.recipe.embedding_scale, dtype=x.dtype))
        if self._positions is not None:
            x.view(*ids.shape, -1).add_(self._positions[start : start + ids.shape[1]])
        return x

    @property
    def experts_hit(self) -> tuple[int, ...]:
        """As `Model.experts_hit`."""
        return tuple(self._distinct)

    @property
    def expert_bytes(self) -> int:
        """Bytes of routed experts that the last step read."""
        routed = [layer.experts for layer in self._layers if layer.experts is not None]
        return sum(part.expert_bytes * hit for part, hit in zip(routed, self._distinct, strict=False))

    @property
    def linears(self) -> list[Linear]:
        """As `Model.linears`."""
        return [*linears_in(self._layers), self._head]

    @property
    def weights(self) -> list[Tensor]:
        """As `Model.weights`."""
        held = [self._embedding, *self._norm.tensors, *self._head.tensors]
        held += [] if self._positions is None else [self._positions]
        return held + [tensor for layer in self._layers for tensor in layer.tensors]

    def _allocate(self, *, batch: int, positions: int) -> None:
        self.cache = HybridCache(self.spec.layers, batch, positions, self.dtype, self.device)
        self._rotaries = {
            layer.rotary: RotaryTable(layer.rotary, positions, self.dtype, self.device)
            for layer in self._layers
            if layer.rotary is not None
        }
