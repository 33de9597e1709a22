"""A step of any family's true shape with a stopwatch between its ops: the decoder's own layers, with made-up weights.

A model too large to be held a second time is measured a shelf at a time: its distinct layers, in groups that fit,
one group in memory after another. The head is cut to some of its rows; time goes as the rows it has.

Worker-side. Knows no text, no sampling and no run.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import torch

from engine import ledger
from engine import spec as specs
from engine.dry_step import Case
from engine.fitting import wanted_shapes
from engine.hybrid_cache import HybridCache
from engine.laps import Laps, OpKey
from engine.model import choosing, ops
from engine.model.attention import Step
from engine.model.latent import Form
from engine.model.layers import HybridLayer, Norm
from engine.model.linear import linears_in
from engine.model.reader import Reader
from engine.model.rotary import RotaryTable
from engine.points import point_kind
from engine.random_weights import RandomTensors
from engine.spec.types import Layer
from engine.timed_parts import Desk, Label, TimedLayer

HEAD_BYTES = 2**29
TABLE_ROWS = 4096
OUTSIDE = -1  # the kind of layer of what stands outside the layers

Rotaries = dict[specs.Rotary, RotaryTable]


def shelves(spec: specs.Spec, itemsize: int, limit_bytes: int) -> list[specs.Spec]:
    """What to hold in turn, each within `limit_bytes`: the whole model, or its distinct layers, once each.

    Of a layer with more experts than fit there are fewer; one that cannot be made to fit is left out.
    """
    if sum(_layer_bytes(spec, layer, itemsize) for layer in spec.layers) <= limit_bytes:
        return [spec]
    found: list[list[Layer]] = []
    left = 0
    for whole, _ in spec.groups:
        layer = _with_fewer_experts(spec, whole, itemsize, limit_bytes)
        needed = _layer_bytes(spec, layer, itemsize)
        if needed > limit_bytes:
            continue
        if not found or needed > left:
            found.append([])
            left = limit_bytes
        found[-1].append(layer)
        left -= needed
    return [replace(spec, layers=tuple(layers)) for layers in found]


class DryParts:
    """The layers of one shelf, walked op by op; with the final norm and the head where `head` says so.

    weights: all that it holds to be read.
    """

    def __init__(
        self, spec: specs.Spec, dtype: torch.dtype, device: torch.device, *, head: bool, form: Form = "absorbed"
    ) -> None:
        self.spec, self.dtype, self.device, self._form = spec, dtype, device, form
        rows = max(1, min(spec.vocab_size, HEAD_BYTES // (spec.hidden_size * dtype.itemsize)))
        held = replace(spec, vocab_size=rows, tied=False)
        shapes = wanted_shapes(held) | {"table": (min(TABLE_ROWS, spec.vocab_size), spec.hidden_size)}
        reader = Reader(RandomTensors(shapes, dtype, zero_centred=spec.recipe.zero_centred), dtype, device)
        self._table = reader.vector("table")
        self._norm = Norm.read(spec, reader, "model.norm")
        self._head = reader.linear("lm_head", bias=False) if head else None
        self._head_rows = rows
        self._desk = Desk()
        self._keys: dict[Case, dict[Label, OpKey]] = {}
        self._kinds = [layer for layer, _ in spec.groups]
        layers = [self._read(index, reader) for index in range(spec.num_layers)]
        choosing.settle(linears_in([self._head, *layers]), dtype)
        self.weights = [tensor for layer in layers for tensor in layer.tensors]
        self.weights += [] if self._head is None else self._head.tensors
        self._layers = [(self._timed(layer, index), layer.rotary) for index, layer in enumerate(layers)]
        self._first = 0

    def step(self, case: Case, laps: Laps, cache: HybridCache, rotary: Rotaries, *, layers: int) -> None:
        """Walk `layers` instances of every distinct layer (the next ones each time), lap by lap.

        The head is walked in decode cases only: a prefill runs it for one row a sequence, as decode does.
        """
        batch, tokens, start = case.batch, case.tokens, case.context - case.tokens
        cache.length = start
        ids = torch.randint(0, len(self._table), (batch, tokens), device=self.device)
        turn = self._turn(layers)
        self._prepare(case, laps, turn)

        laps.start()
        memories = cache.extend(tokens)
        steps = {at: Step(batch, tokens, *table.at(start, start + tokens)) for at, table in rotary.items()}
        unturned = Step(batch, tokens, self._norm.weight[:0], self._norm.weight[:0])
        x = ops.embed(ids, self._table)
        self._desk.lap((OUTSIDE, "embedding"))
        for index in turn:
            layer, at = self._layers[index]
            x = layer(x, steps[at] if at is not None else unturned, memories[index])
        if tokens == 1 and self._head is not None:
            normed = self._norm(x.view(batch, tokens, -1)[:, -1])
            self._desk.lap((OUTSIDE, "final_norm"))
            self._head(normed).float()
            self._desk.lap((OUTSIDE, "lm_head"))

    def cache_for(self, case: Case) -> tuple[HybridCache, Rotaries]:
        """Empty memories of the layers held with a place for every position of a case, and the angles of those."""
        rotaries = {at for _, at in self._layers if at is not None}
        return (
            HybridCache(self.spec.layers, case.batch, case.context, self.dtype, self.device),
            {at: RotaryTable(at, case.context, self.dtype, self.device) for at in rotaries},
        )

    def _read(self, index: int, reader: Reader) -> HybridLayer:
        part = reader.under(f"model.layers.{index}.")
        return HybridLayer.read(self.spec.layers[index], part, self.spec).with_latent_form(self._form)

    def _timed(self, layer: HybridLayer, index: int) -> TimedLayer:
        shape = self.spec.layers[index]
        return TimedLayer(layer, shape, self._desk, self._kinds.index(shape))

    def _turn(self, layers: int) -> list[int]:
        """The next `layers` instances of each kind, in the model's order."""
        of_kind: dict[int, list[int]] = defaultdict(list)
        for index, shape in enumerate(self.spec.layers):
            of_kind[self._kinds.index(shape)].append(index)
        turn = {places[(self._first + n) % len(places)] for places in of_kind.values() for n in range(layers)}
        self._first += layers
        return sorted(turn)

    def _prepare(self, case: Case, laps: Laps, turn: list[int]) -> None:
        """Names and choices of experts are made before the clock starts."""
        keys = self._keys_of(case)
        self._desk.laps, self._desk.keys = laps, keys
        for index in turn:
            dealt = self._layers[index][0].dealt
            if dealt is not None:
                distinct = keys[self._kinds.index(self.spec.layers[index]), "experts_gate_up_proj"].distinct
                dealt.deal(case.rows, distinct, self.device, self.dtype)

    def _keys_of(self, case: Case) -> dict[Label, OpKey]:
        if case not in self._keys:
            keys: dict[Label, OpKey] = {}
            for kind, layer in enumerate(self._kinds):
                for op in counted(replace(self.spec, layers=(layer,)), case).ops:
                    keys[kind, op.name] = keys[OUTSIDE, op.name] = op_key(op, case, self._form_in(case, layer))
            if self._head is not None and case.tokens == 1:
                keys[OUTSIDE, "lm_head"] = replace(keys[OUTSIDE, "lm_head"], n=self._head_rows)
            self._keys[case] = keys
        return self._keys[case]

    def _form_in(self, case: Case, layer: Layer) -> str:
        """A prompt's latents are spelled out either way."""
        return self._form if case.tokens == 1 and isinstance(layer.mixer, specs.LatentAttention) else ""


def counted(spec: specs.Spec, case: Case, dtype: str = "bf16") -> ledger.StepLedger:
    """The ledger of a case."""
    formats = ledger.Formats.dense(dtype)
    if case.tokens == 1:
        return ledger.decode(spec, case.context, batch=case.batch, formats=formats)
    return ledger.prefill(spec, case.tokens, batch=case.batch, formats=formats)


def op_key(op: ledger.Op, case: Case, form: str = "") -> OpKey:
    """What an op of the ledger is timed as."""
    if op.name == "experts_gate_up_proj":
        return OpKey("experts", op.rows, op.n, distinct=round(op.distinct))
    if op.kind == "linear":
        return OpKey("linear", op.rows, k=op.k, n=op.n)
    if op.kind == "attention":
        return OpKey(op.kind, op.rows, op.n, batch=case.batch, context=op.context, form=form)
    if op.kind in ("conv", "recurrence"):
        return OpKey(op.kind, op.rows, op.n, batch=case.batch)
    return OpKey(point_kind(op), op.rows, op.n)


def _layer_bytes(spec: specs.Spec, layer: Layer, itemsize: int) -> int:
    return sum(weight.parameters for weight in spec.layer_weights(layer)) * itemsize


def _with_fewer_experts(spec: specs.Spec, layer: Layer, itemsize: int, limit_bytes: int) -> Layer:
    """The layer with as many of its experts as fit, in whole groups; all of them where they do."""
    part = layer.feed_forward
    if not isinstance(part, specs.Experts) or _layer_bytes(spec, layer, itemsize) <= limit_bytes:
        return layer
    groups = spec.recipe.router.groups
    one = _layer_bytes(spec, replace(layer, feed_forward=replace(part, experts=2)), itemsize)
    one -= _layer_bytes(spec, replace(layer, feed_forward=replace(part, experts=1)), itemsize)
    rest = _layer_bytes(spec, replace(layer, feed_forward=replace(part, experts=1)), itemsize) - one
    fitting = max(0, limit_bytes - rest) // one // groups * groups
    return replace(layer, feed_forward=replace(part, experts=max(fitting, part.top_k, 2 * groups)))
