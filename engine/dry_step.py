"""A step of a model's true shape with a stopwatch between its ops: what each op costs where it stands.

Weights are constants of the right shape, dtype and total size, so that nothing has to be fetched and every
read comes from as far away as in a real step: between two uses of a weight lies all the rest of the model.
The walk calls the model's own layers, linears and functions, in its own order and with real data flowing through
(timed alone, an op finds its input in cache, its threads awake, and its output memory warm).

Worker-side. Knows no text, no sampling and no run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from engine import spec as specs
from engine.cache import AnyKVCache, LayerViews, RoundedViews, kv_cache
from engine.laps import HostLaps, Laps, OpKey
from engine.ledger import Formats
from engine.model import choosing, choosing_steps, ops
from engine.model.attention import Attention, Step
from engine.model.decoder import FORMATS, Decoder, Layer
from engine.model.linear import Linear, linears_in
from engine.model.reader import Reader
from engine.model.rotary import RotaryTable

if TYPE_CHECKING:
    from engine.model.compiled import CompiledSteps

NO_TIME_NS = 1
"""What a point says of an op that was done within another's time (a point's time has to be above zero)."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of step: B sequences, T new tokens each, S positions attended. T is 1 in decode, S in prefill."""

    batch: int
    tokens: int
    context: int

    @property
    def rows(self) -> int:
        """Rows every linear of a layer sees."""
        return self.batch * self.tokens


class DryModel:
    """A dense decoder of a Spec's shape that can be walked op by op.

    layers: how many of them to hold. tensors: weights to hold instead of constants. weights, kv: the formats of
    matrices and of the cache, None for `dtype`.
    """

    def __init__(
        self,
        spec: specs.Spec,
        dtype: torch.dtype,
        device: torch.device,
        *,
        layers: int,
        tensors: Mapping[str, Tensor] | None = None,
        weights: str | None = None,
        kv: str | None = None,
    ) -> None:
        found = ConstantTensors(spec.tensors()) if tensors is None else tensors
        reader = Reader(found, dtype, device, format_=weights)
        self.spec, self.dtype, self.device = spec, dtype, device
        self.layers = [
            Layer.read(layer, reader.under(f"model.layers.{index}."), spec.norm.eps)
            for index, layer in enumerate(spec.layers[:layers])
        ]
        self._embedding = reader.matrix("model.embed_tokens.weight")
        self._norm = reader.vector("model.norm.weight")
        self._head = Linear.of(self._embedding) if spec.tied else reader.linear("lm_head", bias=False)
        self._kv, self._form = kv or FORMATS[dtype], kv or ""
        self._decoder = Decoder(
            spec,
            embedding=self._embedding,
            layers=self.layers,
            norm=self._norm,
            head=self._head,
            max_tokens=spec.max_position,
            kv=self._kv,
        )
        self._compiled = self._decoder.compiled
        if self._compiled is None:
            choosing.settle(linears_in([self._head, *self.layers]), dtype)
        else:
            choosing_steps.settle(self._compiled)
        self._first = 0
        mixer = spec.layers[0].mixer
        assert isinstance(mixer, specs.Attention)
        self._mixer = mixer

    def step(self, case: Case, laps: Laps, cache: AnyKVCache, rotary: RotaryTable, *, layers: int) -> Tensor:
        """Walk `layers` of the layers (the next ones each time, so that all take their turn), lap by lap.

        The head is walked in decode cases only: a prefill runs it for one row a sequence, as decode does.

        A step that the compiled kernels take is taken whole, and they note the time themselves.

        Returns:
            What the last layer walked gave, [rows, h]; logits [B, V] from the compiled kernels.
        """
        if self._compiled is not None and self._compiled.choice.takes(case.rows) and isinstance(laps, HostLaps):
            return self._compiled_step(self._compiled, case, laps, cache, rotary)
        hidden, eps = self.spec.hidden_size, self.spec.norm.eps
        cache.length = case.context - case.tokens
        ids = torch.zeros(case.batch, case.tokens, dtype=torch.long, device=self.device)
        # Names are made before the clock starts: making one takes as long as a small op's launch.
        turn = [(index, LayerKeys.of(self.layers[index], hidden, case, self._form)) for index in self._turn(layers)]
        embedding_key, norm_key = OpKey("embedding", case.rows, hidden), OpKey("norm", case.batch, hidden)
        head_key = _linear_key(self._head, case.batch)

        laps.start()
        views = cache.extend(case.tokens)
        step = Step(case.batch, case.tokens, *rotary.at(case.context - case.tokens, case.context))
        x = ops.embed(ids, self._embedding).to(self.dtype)
        laps.lap(embedding_key)
        for index, keys in turn:
            x = _walk_layer(self.layers[index], x, step, views[index], eps, keys, laps)
        if case.tokens == 1:
            last = x.view(case.batch, case.tokens, -1)[:, -1]
            normed = ops.rms_norm(last, self._norm, eps)
            laps.lap(norm_key)
            self._head(normed).float()
            laps.lap(head_key)
        return x

    def _compiled_step(
        self, compiled: CompiledSteps, case: Case, laps: HostLaps, cache: AnyKVCache, rotary: RotaryTable
    ) -> Tensor:
        """A whole step with the kernels' own laps: five a layer, each named after its linear or its attention.

        What such a lap has beside that (norms, SwiGLU, residuals) was done in it, and takes no time of its own.
        """
        cache.length = case.context - case.tokens
        self._decoder.go_on_in(cache, rotary)
        ids = torch.zeros(case.batch, case.tokens, dtype=torch.long)
        alone = case.tokens == 1
        call = partial(self._decoder.decode, ids[:, 0]) if alone else partial(self._decoder.by_kernels, ids)
        called_ns = perf_counter_ns()
        logits = call()
        took_ns = perf_counter_ns() - called_ns
        names = [LayerKeys.of(layer, self.spec.hidden_size, case, self._form) for layer in self.layers]
        inside = {key for keys in names for key in (keys.norm, keys.rotary, keys.residual, keys.swiglu)}
        inside |= {key for keys, layer in zip(names, self.layers, strict=True) if layer.attention.q_norm is not None
                   for key in (keys.q_norm, keys.k_norm)}  # fmt: skip
        inside.add(OpKey("norm", case.batch, self.spec.hidden_size))
        timed = [OpKey("embedding", case.rows, self.spec.hidden_size)]
        for keys in names:
            timed += [keys.qkv, keys.attention, keys.out, keys.gate_up, keys.down]
        timed.append(_linear_key(self._head, case.batch))
        laps_ns = compiled.laps_ns()
        # A step begins when it is called, as a run's does: it is checked, threads wake up, its tables are filled.
        laps_ns[0] += took_ns - sum(laps_ns)
        laps.put([*timed, *inside], [*laps_ns, *[NO_TIME_NS] * len(inside)])
        return logits

    @property
    def weights(self) -> list[Tensor]:
        """All that it holds to be read."""
        return self._decoder.weights

    @property
    def most_compiled_rows(self) -> int:
        """Rows of the largest step that the compiled kernels take; 0 where they take none."""
        return self._compiled.choice.most_rows if self._compiled is not None else 0

    @property
    def kv_bytes_per_position(self) -> int:
        """Bytes of keys and values one position of one sequence takes over the layers held."""
        one: int = Formats(kv=self._kv).kv_bytes(self._mixer.kv_heads, self._mixer.head_dim)
        return len(self.layers) * 2 * one

    def cache_for(self, case: Case) -> tuple[AnyKVCache, RotaryTable]:
        """An empty cache with a place for every position of a case, and the angles of those positions."""
        assert self._mixer.rotary is not None
        cache = kv_cache(
            self._kv,
            layers=len(self.layers),
            batch=case.batch,
            kv_heads=self._mixer.kv_heads,
            positions=case.context,
            head_dim=self._mixer.head_dim,
            device=self.device,
        )
        return cache, RotaryTable(self._mixer.rotary, case.context, self.dtype, self.device)

    def _turn(self, layers: int) -> list[int]:
        turn = [(self._first + step) % len(self.layers) for step in range(layers)]
        self._first = (self._first + layers) % len(self.layers)
        return turn


@dataclass(frozen=True, slots=True)
class LayerKeys:
    """The names of a layer's laps."""

    norm: OpKey
    qkv: OpKey
    q_norm: OpKey
    k_norm: OpKey
    rotary: OpKey
    attention: OpKey
    out: OpKey
    residual: OpKey
    gate_up: OpKey
    swiglu: OpKey
    down: OpKey

    @classmethod
    def of(cls, layer: Layer, hidden: int, case: Case, form: str) -> LayerKeys:
        """Those of one layer in one kind of step. form: as `OpKey` says of attention."""
        part, rows = layer.attention, case.rows
        inner, kv_width = part.heads * part.head_dim, part.kv_heads * part.head_dim
        return cls(
            norm=OpKey("norm", rows, hidden),
            qkv=_linear_key(part.qkv, rows),
            q_norm=OpKey("norm", rows * part.heads, part.head_dim),
            k_norm=OpKey("norm", rows * part.kv_heads, part.head_dim),
            rotary=OpKey("rotary", rows, inner + kv_width),
            attention=OpKey(
                "attention", rows, inner, batch=case.batch, context=case.context, kv_width=kv_width, form=form
            ),
            out=_linear_key(part.out, rows),
            residual=OpKey("residual", rows, hidden),
            gate_up=_linear_key(layer.mlp.gate_up, rows),
            swiglu=OpKey("swiglu", rows, layer.mlp.down.shape[1]),
            down=_linear_key(layer.mlp.down, rows),
        )


def _walk_layer(
    layer: Layer, x: Tensor, step: Step, views: LayerViews | RoundedViews, eps: float, keys: LayerKeys, laps: Laps
) -> Tensor:
    """`Decoder._through`'s loop body, with a lap after each op."""
    normed = ops.rms_norm(x, layer.input_norm, eps)
    laps.lap(keys.norm)
    attended = _walk_attention(layer.attention, normed, step, views, keys, laps)
    x = ops.add_residual_(x, attended)
    laps.lap(keys.residual)

    normed = ops.rms_norm(x, layer.post_attention_norm, eps)
    laps.lap(keys.norm)
    wide = layer.mlp.gate_up(normed)
    laps.lap(keys.gate_up)
    inner = ops.swiglu_(wide)
    laps.lap(keys.swiglu)
    down = layer.mlp.down(inner)
    laps.lap(keys.down)
    x = ops.add_residual_(x, down)
    laps.lap(keys.residual)
    return x


def _walk_attention(
    part: Attention, normed: Tensor, step: Step, views: LayerViews | RoundedViews, keys: LayerKeys, laps: Laps
) -> Tensor:
    """`Attention.__call__`, with a lap after each op."""
    heads = part.qkv(normed).view(step.batch, step.tokens, -1, part.head_dim)
    queries, keys_values = heads[:, :, : part.heads], heads[:, :, part.heads :]
    laps.lap(keys.qkv)
    if part.q_norm is not None and part.k_norm is not None:
        key_heads = keys_values[:, :, : part.kv_heads]
        queries.copy_(ops.rms_norm(queries, part.q_norm, part.eps))
        laps.lap(keys.q_norm)
        key_heads.copy_(ops.rms_norm(key_heads, part.k_norm, part.eps))
        laps.lap(keys.k_norm)
    ops.rotate_heads_(heads[:, :, : part.heads + part.kv_heads], step.cos, step.signed_sin)
    laps.lap(keys.rotary)
    ops.write_cache_(views.new, keys_values)
    attend = ops.decode_attention if step.tokens == 1 else ops.prefill_attention
    mixed = attend(queries, views.keys, views.values)
    laps.lap(keys.attention)
    out = part.out(mixed)
    laps.lap(keys.out)
    return out


class ConstantTensors(Mapping[str, Tensor]):
    """A checkpoint of constants: norms 1, biases 0, and matrices that average their input.

    Values stay near 1 through any number of layers: no infinities, and no denormals, which many CPUs multiply slowly.
    Each takes the memory of one number until it is copied.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    def __getitem__(self, name: str) -> Tensor:
        shape = self._shapes[name]
        value = 1.0 / shape[-1] if len(shape) > 1 else float(not name.endswith(".bias"))
        return torch.tensor(value).expand(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def _linear_key(linear: Linear, rows: int) -> OpKey:
    n, k = linear.shape
    return OpKey("linear", rows, k=k, n=n)
