"""The decoder: a stack of layers, run in two ways. Prefill reads a prompt at once; decode adds one token.

Read `Decoder._read`; the rest is loading, and the two phases are in `engine.model.phases`. It knows token ids and
logits, nothing of text, sampling or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine import spec as specs
from engine.cache import KVCache
from engine.model import ops, supported
from engine.model.attention import Attention, Step
from engine.model.linear import Linear
from engine.model.mlp import Mlp
from engine.model.phases import Model, context_limit
from engine.model.reader import Reader
from engine.model.rotary import RotaryTable


@dataclass(frozen=True, slots=True)
class Layer:
    """Norm, attention, add; norm, MLP, add."""

    input_norm: Tensor
    attention: Attention
    post_attention_norm: Tensor
    mlp: Mlp

    @classmethod
    def read(cls, layer: specs.Layer, reader: Reader, eps: float) -> Layer:
        """Take the weights whose names begin with "model.layers.N."."""
        assert isinstance(layer.mixer, specs.Attention)
        assert isinstance(layer.feed_forward, specs.Mlp)
        return cls(
            input_norm=reader.vector("input_layernorm.weight"),
            attention=Attention.read(layer.mixer, reader, eps),
            post_attention_norm=reader.vector("post_attention_layernorm.weight"),
            mlp=Mlp.read(layer.feed_forward, reader),
        )

    @property
    def tensors(self) -> list[Tensor]:
        """What it keeps resident."""
        return [self.input_norm, *self.attention.tensors, self.post_attention_norm, *self.mlp.tensors]


class Decoder(Model):
    """A dense decoder with its cache."""

    cache: KVCache

    def __init__(
        self, spec: specs.Spec, *, embedding: Tensor, layers: list[Layer], norm: Tensor, head: Linear, max_tokens: int
    ) -> None:
        self.spec = spec
        self.device = embedding.device
        self.dtype = embedding.dtype
        self.max_tokens = max_tokens
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
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
    ) -> Decoder:
        """Build from tensors named as a Llama-like checkpoint names them. They are copied; none is kept.

        Raises:
            LabError: the family is not supported, a tensor is missing, or `max_tokens` is beyond the model's context.
        """
        supported.check(spec)
        limit = context_limit(spec, max_tokens)
        reader = Reader(tensors, dtype, torch.device(device))
        embedding = reader.vector("model.embed_tokens.weight")
        return cls(
            spec,
            embedding=embedding,
            # Before the layers: while it is copied it is in memory twice, and then it is better to hold little else.
            head=Linear(embedding) if spec.tied else reader.linear("lm_head", bias=False),
            layers=[
                Layer.read(layer, reader.under(f"model.layers.{index}."), spec.norm.eps)
                for index, layer in enumerate(spec.layers)
            ],
            norm=reader.vector("model.norm.weight"),
            max_tokens=limit,
        )

    def _read(self, ids: Tensor) -> Tensor:
        """One pass of the layers over new tokens [B, T] behind what the cache holds; the last position's, [B, h]."""
        batch, tokens = ids.shape
        # Only the last position's logits are ever used; the head is the model's largest matrix.
        return self._through(ids).view(batch, tokens, -1)[:, -1]

    @torch.inference_mode()
    def score(self, ids: Tensor) -> Tensor:
        """Read new tokens [B, T] behind what the cache holds; logits of every one of them, [B, T, V], fp32.

        For checking drafted tokens: one reading of the weights, one set of logits a row.
        """
        return self._logits(self._through(ids).view(*ids.shape, -1))

    def _through(self, ids: Tensor) -> Tensor:
        """What the layers give for each new token, [B * T, h]."""
        start, (batch, tokens) = self.cache.length, ids.shape
        cached = self.cache.extend(tokens)
        step = Step(batch, tokens, *self._rotary.at(start, start + tokens))
        eps = self.spec.norm.eps

        x = ops.embed(ids, self._embedding)
        for layer, views in zip(self._layers, cached, strict=True):
            attended = layer.attention(ops.rms_norm(x, layer.input_norm, eps), step, views)
            x = ops.add_residual_(x, attended)
            x = ops.add_residual_(x, layer.mlp(ops.rms_norm(x, layer.post_attention_norm, eps)))
        return x

    def _logits(self, hidden: Tensor) -> Tensor:
        """The final norm and the head: [..., h] -> [..., V], fp32."""
        return self._head(ops.rms_norm(hidden, self._norm, self.spec.norm.eps)).float()

    @property
    def resident_weight_bytes(self) -> int:
        """Bytes of every weight tensor held, each once: a tied head is the embedding itself."""
        held = [self._embedding, self._norm, *self._head.tensors]
        held += [tensor for layer in self._layers for tensor in layer.tensors]
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in held}.values())

    def _allocate(self, *, batch: int, positions: int) -> None:
        mixer = self.spec.layers[0].mixer
        assert isinstance(mixer, specs.Attention)
        assert mixer.rotary is not None
        self.cache = KVCache(
            layers=len(self._layers),
            batch=batch,
            kv_heads=mixer.kv_heads,
            positions=positions,
            head_dim=mixer.head_dim,
            dtype=self.dtype,
            device=self.device,
        )
        self._rotary = RotaryTable(mixer.rotary, positions, self.dtype, self.device)
