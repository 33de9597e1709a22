"""The two phases every model has, whatever its layers: prefill reads a prompt at once, decode adds one token.

A long prompt is read in chunks, one behind the other: what the activations of a pass take then depends on the chunk
and not on the prompt, and weights are read once for each chunk (`engine.ledger.prefill` counts that).

Knows the cache's limits and the order of the phases; what a forward pass computes is the decoders' business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from engine.cache import CacheBytes
from engine.chunks import PREFILL_ROWS, chunk_lengths
from engine.errors import LabError
from engine.model import supported
from engine.model.linear import Linear, most_rows_of
from engine.request import no_choice_of_kv
from engine.spec import Spec

Reading = Callable[[int], None]
"""Told how many tokens of each prompt were read so far, before each chunk of a prompt that is read in several. It runs
between two chunks, inside the time of the prefill, and should take next to none of it; what it raises ends the prefill.
"""


class Cache(Protocol):
    """What a model remembers between steps, as far as the phases need to know."""

    batch: int
    positions: int
    length: int

    @property
    def bytes(self) -> CacheBytes:
        """Bytes allocated and filled, by kind."""

    def reset(self) -> None:
        """Forget every position."""


class Model(ABC):
    """A model with its cache.

    spec: its dimensions. device, dtype: where and in what it computes; logits are always fp32.
    max_tokens: the most positions a context may have, prompt and answer together.
    """

    spec: Spec
    device: torch.device
    dtype: torch.dtype
    max_tokens: int
    cache: Cache

    @classmethod
    def from_tensors(
        cls,
        spec: Spec,
        tensors: Mapping[str, Tensor],
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        max_tokens: int | None = None,
    ) -> Model:
        """The decoder a Spec needs, from a checkpoint's tensors. They are copied; none is kept.

        Raises:
            LabError: the family is not supported, a tensor is missing, or `max_tokens` is beyond the model's context.
        """
        # Not at the top: both build on this class.
        from engine.model.decoder import Decoder
        from engine.model.hybrid import HybridDecoder

        kind = Decoder if supported.is_plain(spec) else HybridDecoder
        return kind.from_tensors(spec, tensors, device, dtype, max_tokens)

    @torch.inference_mode()
    def prefill(
        self,
        ids: Tensor,
        *,
        positions: int | None = None,
        rows: int = PREFILL_ROWS,
        reading: Reading = lambda tokens: None,
    ) -> Tensor:
        """Read prompts of equal length, from an empty cache; what was there before is forgotten.

        Args:
            ids: [B, T], on this device.
            positions: how many the cache has to hold in all; None takes `max_tokens`.
            rows: the most tokens, of all sequences together, that one pass over the layers takes.
            reading: how far it is; not called for a prompt that one pass takes.

        Returns:
            Logits of the last position, [B, V], fp32.

        Raises:
            LabError: the prompt is empty or longer than the cache, or the cache longer than `max_tokens`.
        """
        batch, tokens = ids.shape
        self._prepare_cache(batch, self.max_tokens if positions is None else positions)
        if tokens == 0:
            raise LabError("The prompt is empty; it has to have at least one token.")
        self._begin()
        *first, last = torch.split(ids, chunk_lengths(tokens, batch, rows), dim=1)
        for chunk in first:
            reading(self.cache.length)
            self._read(chunk)
        if first:
            reading(self.cache.length)
        return self._step(last)

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
        self._begin()
        return self._step(ids[:, None])

    def reset(self) -> None:
        """Forget the context; the cache keeps its memory."""
        self.cache.reset()

    def hold_kv(self, format_: str | None) -> None:
        """What keys and values are held in from the next prefill on; None for what is computed in.

        Raises:
            LabError: this decoder holds them in nothing else.
        """
        if format_ is not None:
            raise no_choice_of_kv(format_, self.spec.model_type)

    @property
    @abstractmethod
    def weights(self) -> list[Tensor]:
        """Every weight tensor held; a tied head is the embedding once more."""

    @property
    def resident_weight_bytes(self) -> int:
        """Bytes of every weight tensor held, each once."""
        return sum({tensor.data_ptr(): tensor.nbytes for tensor in self.weights}.values())

    @property
    def experts_hit(self) -> tuple[int, ...]:
        """Distinct experts the last step read in each layer that has experts, in the order of those layers; of a
        prompt read in chunks, the sum over its chunks.
        """
        return ()

    @property
    def expert_bytes(self) -> int:
        """Bytes of routed experts that the last step read."""
        return 0

    @property
    def linears(self) -> list[Linear]:
        """The matrices that steps of few rows multiply one by one: not those of a step that is compiled whole."""
        return []

    @property
    def kernels(self) -> dict[str, str]:
        """What a record says of the compiled kernels: up to how many rows they take whole steps ("whole_steps"), or the
        products of steps ("few_rows", as "8", or "4-16" where that depends on the matrix).
        """
        return most_rows_of(self.linears, self.dtype)

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

    def _begin(self) -> None:  # noqa: B027 - most decoders have nothing to do
        """A step begins."""

    def _step(self, ids: Tensor) -> Tensor:
        """The pass that gives logits, [B, V], fp32: of a token for each sequence, or of a prompt's last chunk."""
        return self._logits(self._read(ids))

    @abstractmethod
    def _read(self, ids: Tensor) -> Tensor:
        """One pass of the layers over new tokens [B, T] behind what the cache holds; the last position's, [B, h]."""

    @abstractmethod
    def _logits(self, hidden: Tensor) -> Tensor:
        """The final norm and the head on what the layers gave for one position of each sequence; [B, V], fp32."""

    @abstractmethod
    def _allocate(self, *, batch: int, positions: int) -> None:
        """A new, empty cache of this size."""


def context_limit(spec: Spec, max_tokens: int | None) -> int:
    """The positions asked for, or all the model has.

    Raises:
        LabError: less than one, or more than the model has.
    """
    limit = spec.max_position if max_tokens is None else max_tokens
    if not 1 <= limit <= spec.max_position:
        raise LabError(
            "A context of {tokens} tokens was asked for; this model takes 1 to {limit}.",
            tokens=limit,
            limit=spec.max_position,
        )
    return limit
