"""A decoder whose layers may be of any kind: recurrent, windowed, latent, with experts, in any order.

The same two phases as the dense decoder. Beside the logits it can say which part of the model a step has read:
`experts_hit` is the router's real choice in the last step.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from engine import spec as specs
from engine.errors import LabError
from engine.hybrid_cache import HybridCache
from engine.model import ops
from engine.model.attention import Step
from engine.model.latent import Form
from engine.model.layers import HybridLayer, Norm
from engine.model.linear import Linear
from engine.model.names import Canonical
from engine.model.reader import Reader
from engine.model.rotary import RotaryTable


class HybridDecoder:
    """A decoder of any family with its cache; the arguments of `from_tensors` are those of the dense one."""

    def __init__(self, spec: specs.Spec, reader: Reader, max_tokens: int, latent_form: Form) -> None:
        self.spec = spec
        self.device = reader.device
        self.dtype = reader.dtype
        self.max_tokens = max_tokens
        self._embedding = reader.vector("model.embed_tokens.weight")
        self._positions = reader.vector("model.embed_positions.weight") if spec.positions else None
        self._layers = [
            HybridLayer.read(layer, reader.under(f"model.layers.{index}."), spec, latent_form)
            for index, layer in enumerate(spec.layers)
        ]
        self._norm = Norm.read(spec, reader, "model.norm")
        self._head = Linear(self._embedding) if spec.tied else reader.linear("lm_head", bias=False)
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
        latent_form: Form = "absorbed",
    ) -> HybridDecoder:
        """Build from tensors named as the family's checkpoints name them. They are copied; none is kept.

        latent_form: how latent attention reads its cache in decode; see `engine.model.latent`.

        Raises:
            LabError: a tensor is missing, or `max_tokens` is beyond the model's context.
        """
        limit = spec.max_position if max_tokens is None else max_tokens
        if not 1 <= limit <= spec.max_position:
            raise LabError(
                "A context of {tokens} tokens was asked for; this model takes 1 to {limit}.",
                tokens=limit,
                limit=spec.max_position,
            )
        return cls(spec, Reader(Canonical(tensors, spec), dtype, torch.device(device)), limit, latent_form)

    @torch.inference_mode()
    def prefill(self, ids: Tensor, *, positions: int | None = None) -> Tensor:
        """Read prompts of equal length, from an empty cache; what was there before is forgotten.

        Args:
            ids: [B, T], on this device.
            positions: how many the cache has to hold in all; None takes `max_tokens`.

        Returns:
            Logits of the last position, [B, V], fp32.

        Raises:
            LabError: the prompt is empty or longer than the cache, or the cache longer than `max_tokens`.
        """
        batch, tokens = ids.shape
        self._prepare_cache(batch, self.max_tokens if positions is None else positions)
        if tokens == 0:
            raise LabError("The prompt is empty; it has to have at least one token.")
        return self._forward(ids)

    @torch.inference_mode()
    def decode(self, ids: Tensor) -> Tensor:
        """Add one token to every sequence.

        Args:
            ids: [B], on this device, for the batch of the last prefill.

        Returns:
            Logits of the new position, [B, V], fp32.

        Raises:
            LabError: nothing was prefilled for this batch, or the cache is full.
        """
        if self.cache.length == 0 or self.cache.batch != len(ids):
            raise LabError("Decode continues a prefill of the same batch; run prefill first.")
        return self._forward(ids[:, None])

    def _forward(self, ids: Tensor) -> Tensor:
        """One pass over new tokens [B, T] behind what the cache holds; logits of the last position, [B, V]."""
        start, (batch, tokens) = self.cache.length, ids.shape
        memories = self.cache.extend(tokens)
        steps = {
            rotary: Step(batch, tokens, *table.at(start, start + tokens)) for rotary, table in self._rotaries.items()
        }
        unturned = Step(batch, tokens, self._norm.weight[:0], self._norm.weight[:0])
        self._distinct = []

        x = self._embed(ids, start)
        for layer, memory in zip(self._layers, memories, strict=True):
            step = steps[layer.rotary] if layer.rotary is not None else unturned
            x = layer(x, step, memory, self._distinct)

        # Only the last position's logits are ever used; the head is the model's largest matrix.
        logits = self._head(self._norm(x.view(batch, tokens, -1)[:, -1])).float()
        return logits if self.spec.recipe.logits_divisor == 1 else logits / self.spec.recipe.logits_divisor

    def _embed(self, ids: Tensor, start: int) -> Tensor:
        x = ops.embed(ids, self._embedding)
        if self.spec.recipe.embedding_scale != 1:
            # The scale is rounded to the model's dtype first, as in the families that use one.
            x.mul_(torch.tensor(self.spec.recipe.embedding_scale, dtype=x.dtype))
        if self._positions is not None:
            x.view(*ids.shape, -1).add_(self._positions[start : start + ids.shape[1]])
        return x

    def reset(self) -> None:
        """Forget the context; the cache keeps its memory."""
        self.cache.reset()

    @property
    def experts_hit(self) -> tuple[int, ...]:
        """Distinct experts the last step read in each layer that has experts, in the order of those layers."""
        return tuple(self._distinct)

    @property
    def expert_bytes(self) -> int:
        """Bytes of routed experts that the last step read."""
        routed = [layer.experts for layer in self._layers if layer.experts is not None]
        return sum(part.expert_bytes * hit for part, hit in zip(routed, self._distinct, strict=False))

    @property
    def resident_weight_bytes(self) -> int:
        """Bytes of every weight tensor held, each once: a tied head is the embedding itself."""
        held = [self._embedding, *self._norm.tensors, *self._head.tensors]
        held += [] if self._positions is None else [self._positions]
        held += [tensor for layer in self._layers for tensor in layer.tensors]
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in held}.values())

    def _prepare_cache(self, batch: int, positions: int) -> None:
        """An empty cache of this size; the last one is used again if it has it."""
        if positions > self.max_tokens:
            raise LabError(
                "{positions} positions were asked for; this context was limited to {limit}.",
                positions=positions,
                limit=self.max_tokens,
            )
        if (self.cache.batch, self.cache.positions) != (batch, positions):
            self._allocate(batch=0, positions=0)  # give the old memory back before taking the new
            self._allocate(batch=batch, positions=positions)
        self.cache.reset()

    def _allocate(self, *, batch: int, positions: int) -> None:
        self.cache = HybridCache(self.spec.layers, batch, positions, self.dtype, self.device)
        self._rotaries = {
            layer.rotary: RotaryTable(layer.rotary, positions, self.dtype, self.device)
            for layer in self._layers
            if layer.rotary is not None
        }
