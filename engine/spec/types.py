"""Spec: one checkpoint's dimensions, whatever its family, as frozen data.

A Spec is a list of layers, each a mixer (attention of some kind, or a recurrence) and a feed-forward part, plus what
stands before and after them. Everything the ledger counts follows from it; nothing here knows bytes or devices.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from engine.spec.experts import Experts
from engine.spec.latent import LatentAttention
from engine.spec.parts import Attention, Mlp, Role, Weight
from engine.spec.recipe import PLAIN, Recipe
from engine.spec.recurrent import GatedDeltaNet, KimiDelta, Mamba2

Mixer = Attention | LatentAttention | GatedDeltaNet | KimiDelta | Mamba2
FeedForward = Mlp | Experts


@dataclass(frozen=True, slots=True)
class Norm:
    """The norms over the hidden size: "rms" or "layer" (which also has a bias), their epsilon, how many a layer has.

    sandwich: Gemma-like, a second norm after the mixer and after the feed-forward part as well.
    """

    kind: str = "rms"
    eps: float = 1e-6
    bias: bool = False
    sandwich: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. Nemotron-H puts only one of the two parts in a layer: the other is None."""

    mixer: Mixer | None
    feed_forward: FeedForward | None


@dataclass(frozen=True, slots=True)
class Extra:
    """A part of the checkpoint that is held but not read in a text step: a vision tower, an MTP layer.

    `parameters` counts what the part adds to the published total; `matrices` its weights where those are listed.
    """

    name: str
    parameters: int
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the checkpoint's own files store their weights: a format of `engine.ledger.formats` and the parts in it."""

    format: str
    roles: frozenset[Role]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameter counts. Nothing is counted twice: a tied head is its embedding.

    matmul: what the lesson multiplies per token - the trunk without embedding table and hidden-size norms (with the
        head, tied or not), and of the experts only those a token is routed to.
    matmul_all: the same with every expert.
    trunk: the text model. checkpoint: the trunk with vision tower and MTP layers.
    """

    matmul: int
    matmul_all: int
    trunk: int
    checkpoint: int
    embedding: int
    hidden_norms: int
    experts: int


@dataclass(frozen=True)
class Spec:
    """A decoder's dimensions, read from its config.json by `engine.spec.read`.

    dtype: what the checkpoint's unquantised weights are stored in ("bf16", "fp16", "fp32").
    recipe: how the family computes what these dimensions leave open; no byte depends on it.
    positions: rows of a learned position table (GPT-2), else 0.
    state_dtype: what recurrent states are kept in. extras: what is held but never read by a text step.
    """

    model_type: str
    architecture: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    tied: bool
    max_position: int
    norm: Norm = Norm()
    dtype: str = "bf16"
    positions: int = 0
    extras: tuple[Extra, ...] = ()
    quantization: Quantization | None = None
    state_dtype: str = "fp32"
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    recipe: Recipe = PLAIN

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Enough to tell specs apart in a cache; hashing every layer on each look-up would cost more than the ledger.
        return hash((self.model_type, self.hidden_size, self.vocab_size, len(self.layers), self.max_position))

    @cached_property
    def groups(self) -> tuple[tuple[Layer, int], ...]:
        """Distinct layers with how often each occurs, in order of first appearance."""
        return tuple(Counter(self.layers).items())

    @property
    def num_layers(self) -> int:
        """How many layers there are."""
        return len(self.layers)

    def layer_norms(self, layer: Layer) -> tuple[Weight, ...]:
        """The hidden-size norms of one layer, named as a Llama-like checkpoint names them."""
        if layer.mixer is None or layer.feed_forward is None:
            return self._norm("norm", "input_norm")
        names = [("input_layernorm", "input_norm"), ("post_attention_layernorm", "post_attention_norm")]
        if self.norm.sandwich:
            names = [names[0], ("post_attention_layernorm", "mixer_output_norm")]
            names += [("pre_feedforward_layernorm", "post_attention_norm")]
            names += [("post_feedforward_layernorm", "feed_forward_output_norm")]
        return tuple(weight for name, op in names for weight in self._norm(name, op))

    def layer_weights(self, layer: Layer) -> tuple[Weight, ...]:
        """Every weight of one layer: norms, mixer, feed-forward part. Names lack the "model.layers.N." in front."""
        mixer = layer.mixer.weights(self.hidden_size) if layer.mixer else ()
        feed_forward = layer.feed_forward.weights(self.hidden_size) if layer.feed_forward else ()
        return (*self.layer_norms(layer), *mixer, *feed_forward)

    @cached_property
    def outer_weights(self) -> tuple[Weight, ...]:
        """What stands outside the layers: embedding, learned positions, final norm, the head unless it is tied."""
        table = Weight(
            "model.embed_tokens.weight", (self.vocab_size, self.hidden_size), "embedding", "embedding", "table"
        )
        found = [table]
        if self.positions:
            shape = (self.positions, self.hidden_size)
            found.append(Weight("model.embed_positions.weight", shape, "embedding", "embedding", "table"))
        found += self._norm("model.norm", "final_norm")
        if not self.tied:
            found.append(self.head)
        return tuple(found)

    @cached_property
    def head(self) -> Weight:
        """The matrix that makes logits; where tied, the embedding table under its second use."""
        name = "model.embed_tokens.weight" if self.tied else "lm_head.weight"
        return Weight(name, (self.vocab_size, self.hidden_size), "lm_head", "head")

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the text model by full name with its shape, copies of experts folded into one entry."""
        found = {weight.name: weight.shape for weight in self.outer_weights}
        for index, layer in enumerate(self.layers):
            found.update({f"model.layers.{index}.{w.name}": w.shape for w in self.layer_weights(layer)})
        return found

    @cached_property
    def parameters(self) -> Parameters:
        """The parameter counts every convention starts from."""
        weighted = [(w, 1) for w in self.outer_weights]
        weighted += [(w, count) for layer, count in self.groups for w in self.layer_weights(layer)]
        trunk = sum(w.parameters * count for w, count in weighted)
        tables = sum(w.parameters * count for w, count in weighted if w.use == "table")
        norms = sum(w.parameters * count for w, count in weighted if w.use == "hidden_norm")
        matmul_all = trunk - tables - norms + (self.head.parameters if self.tied else 0)
        experts = sum(w.parameters * count for w, count in weighted if w.role == "experts")
        routed = [
            (layer.feed_forward, count) for layer, count in self.groups if isinstance(layer.feed_forward, Experts)
        ]
        active = sum(part.active_parameters(self.hidden_size) * count for part, count in routed)
        return Parameters(
            matmul=matmul_all - experts + active,
            matmul_all=matmul_all,
            trunk=trunk,
            checkpoint=trunk + sum(extra.parameters for extra in self.extras),
            embedding=self.vocab_size * self.hidden_size,
            hidden_norms=norms,
            experts=experts,
        )

    def _norm(self, name: str, op: str) -> tuple[Weight, ...]:
        kinds = ("weight", "bias") if self.norm.bias else ("weight",)
        return tuple(Weight(f"{name}.{kind}", (self.hidden_size,), op, "norm", "hidden_norm") for kind in kinds)
