"""The decoder: a stack of layers, run in two ways. Prefill reads a prompt at once; decode adds one token.

Read `Decoder._read`; the rest is loading, and the two phases are in `engine.model.phases`. It knows token ids and
logits, nothing of text, sampling or clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from engine import kernels
from engine import spec as specs
from engine.cache import DTYPES, AnyKVCache, LayerViews, RoundedViews, kv_cache
from engine.dense import fits_kernels
from engine.errors import LabError
from engine.model import ops, supported
from engine.model.attention import Attention, Step
from engine.model.graph import DecodeGraph, what_compiling_lacks
from engine.model.linear import Linear, linears_in
from engine.model.mlp import Mlp
from engine.model.packed import Packed
from engine.model.phases import Model, context_limit
from engine.model.reader import Reader
from engine.model.rotary import RotaryTable

if TYPE_CHECKING:
    from engine.model.compiled import CompiledSteps

Launches = Literal["eager", "graph", "compiled"]


FORMATS = {dtype: format_ for format_, dtype in DTYPES.items()}
"""What a cache is held in where nothing else is asked for, by what is computed in."""


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


def compile_steps(
    spec: specs.Spec, layers: list[Layer], embedding: Tensor | Packed, norm: Tensor, head: Linear, kv: str
) -> CompiledSteps | None:
    """The compiled kernels for these parts, or None where plain torch computes: on other devices, in other dtypes.

    kv: the format of the cache.
    """
    if norm.device.type != "cpu" or norm.dtype != torch.float32 or not kernels.usable():
        return None
    # Not at the top: it needs numba, which may be missing.
    from engine.model.compiled import CompiledSteps, Outer

    return CompiledSteps(spec, layers, Outer(embedding, norm, head), kv) if fits_kernels(spec) else None


class Decoder(Model):
    """A dense decoder with its cache. Where the compiled kernels can be used, they take every step of few rows."""

    cache: AnyKVCache
    _graph: DecodeGraph | None  # it belongs to the cache it was captured with

    def __init__(
        self,
        spec: specs.Spec,
        *,
        embedding: Tensor | Packed,
        layers: list[Layer],
        norm: Tensor,
        head: Linear,
        max_tokens: int,
        kv: str | None = None,
    ) -> None:
        self.spec = spec
        self.device = norm.device
        self.dtype = norm.dtype
        self.max_tokens = max_tokens
        self._embedding = embedding
        self._layers = layers
        self._norm = norm
        self._head = head
        self._kv = kv or FORMATS[self.dtype]
        self._compiled = compile_steps(spec, layers, embedding, norm, head, self._kv)
        self._launches: Launches = "eager"
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
        weights: str | None = None,
        kv: str | None = None,
    ) -> Decoder:
        """Build from tensors named as a Llama-like checkpoint names them. They are copied; none is kept.

        weights: the format of matrices ("bf16", "int8" ...); None for `dtype`.
        kv: as `hold_kv`.

        Raises:
            LabError: the family is not supported, a tensor is missing, or `max_tokens` is beyond the model's context.
        """
        supported.check(spec)
        limit = context_limit(spec, max_tokens)
        reader = Reader(tensors, dtype, torch.device(device), format_=weights)
        embedding = reader.matrix("model.embed_tokens.weight")
        return cls(
            spec,
            embedding=embedding,
            # Before the layers: while it is copied it is in memory twice, and then it is better to hold little else.
            head=Linear.of(embedding) if spec.tied else reader.linear("lm_head", bias=False),
            layers=[
                Layer.read(layer, reader.under(f"model.layers.{index}."), spec.norm.eps)
                for index, layer in enumerate(spec.layers)
            ],
            norm=reader.vector("model.norm.weight"),
            max_tokens=limit,
            kv=kv,
        )

    def hold_kv(self, format_: str | None) -> None:
        """As `Model.hold_kv`: "fp32", "bf16" or "int8". Plain torch spells the cache out again at every step."""
        kept = format_ or FORMATS[self.dtype]
        if kept != self._kv:
            self._kv = kept
            if self._compiled is not None:
                self._compiled.hold_kv(kept)
            self._allocate(batch=0, positions=0)

    def go_on_in(self, cache: AnyKVCache, rotary: RotaryTable) -> None:
        """Take a cache made elsewhere, with what it holds as the context, and the angles of its positions."""
        self.cache, self._rotary, self._graph = cache, rotary, None

    def use_launches(self, how: Launches) -> None:
        """How decode steps are started from now on: op by op, or replayed from a CUDA graph that the first step behind
        a new cache records, as it is ("graph") or after torch.compile ("compiled").

        Raises:
            LabError: there are no such graphs on this device, or torch.compile lacks something here.
        """
        if how != "eager" and self.device.type != "cuda":
            raise LabError("Steps can be recorded as a graph on cuda, not on {device}.", device=str(self.device))
        lacks = what_compiling_lacks() if how == "compiled" else []
        if lacks:
            raise LabError(
                "torch.compile needs {missing}, which is not here; record the graph without it.",
                missing=", ".join(lacks),
            )
        if how != self._launches:
            self._launches, self._graph = how, None

    @property
    def graph(self) -> DecodeGraph | None:
        """The recorded step, once there is one."""
        return self._graph

    def _step(self, ids: Tensor) -> Tensor:
        if self._launches != "eager" and ids.shape[1] == 1:
            self._graph = self._graph or DecodeGraph(self, compiled=self._launches == "compiled")
            return self._graph(ids[:, 0])
        whole = self._compiled is not None and self._compiled.choice.takes(ids.numel())
        return self.by_kernels(ids) if whole else self.by_torch(ids)

    def by_kernels(self, ids: Tensor) -> Tensor:
        """The step by the compiled kernels, however many rows it has."""
        assert self._compiled is not None
        return self._compiled(ids, self.cache, self._rotary)

    def by_torch(self, ids: Tensor) -> Tensor:
        """The same by plain torch and what it calls, however few the rows are."""
        return super()._step(ids)

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
        if self._compiled is not None and self._compiled.choice.takes(ids.numel()):
            return self._compiled(ids, self.cache, self._rotary, every=True)
        return self._logits(self._through(ids).view(*ids.shape, -1))

    def _through(self, ids: Tensor) -> Tensor:
        """What the layers give for each new token, [B * T, h]."""
        start, (batch, tokens) = self.cache.length, ids.shape
        cached: Sequence[LayerViews | RoundedViews] = self.cache.extend(tokens)
        step = Step(batch, tokens, *self._rotary.at(start, start + tokens))
        eps = self.spec.norm.eps

        x = ops.embed(ids, self._embedding).to(self.dtype)
        for layer, views in zip(self._layers, cached, strict=True):
            attended = layer.attention(ops.rms_norm(x, layer.input_norm, eps), step, views)
            x = ops.add_residual_(x, attended)
            x = ops.add_residual_(x, layer.mlp(ops.rms_norm(x, layer.post_attention_norm, eps)))
        return x

    def _logits(self, hidden: Tensor) -> Tensor:
        """The final norm and the head: [..., h] -> [..., V], fp32."""
        return self._head(ops.rms_norm(hidden, self._norm, self.spec.norm.eps)).float()

    @property
    def linears(self) -> list[Linear]:
        """As `Model.linears`. The head also ends a long prompt, which is not compiled."""
        return [*linears_in(self._layers if self._compiled is None else []), self._head]

    @property
    def compiled(self) -> CompiledSteps | None:
        """Its steps by the compiled kernels, where they can be used."""
        return self._compiled

    @property
    def kernels(self) -> dict[str, str]:
        """As `Model.kernels`."""
        return super().kernels if self._compiled is None else {"whole_steps": str(self._compiled.choice.most_rows)}

    @property
    def has_packed_weights(self) -> bool:
        """Whether matrices are held in whole numbers and scales."""
        return isinstance(self._embedding, Packed)

    @property
    def weights(self) -> list[Tensor]:
        """As `Model.weights`."""
        held = [*Linear.of(self._embedding).tensors, self._norm, *self._head.tensors]
        return held + [tensor for layer in self._layers for tensor in layer.tensors]

    def _allocate(self, *, batch: int, positions: int) -> None:
        mixer = self.spec.layers[0].mixer
        assert isinstance(mixer, specs.Attention)
        assert mixer.rotary is not None
        self.cache = kv_cache(
            self._kv,
            layers=len(self._layers),
            batch=batch,
            kv_heads=mixer.kv_heads,
            positions=positions,
            head_dim=mixer.head_dim,
            device=self.device,
        )
        self._rotary = RotaryTable(mixer.rotary, positions, self.dtype, self.device)
        self._graph = None
