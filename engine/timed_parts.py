"""A layer of any family with a stopwatch between its ops: its own parts, each call of a linear marked.

The parts run their own code, unchanged; only what they call is wrapped. What lies between two marked calls is one
lap, and carries the name of the largest of the ledger's ops in it; `COVERS` of `engine.points` lists the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from engine import spec as specs
from engine.laps import Laps, OpKey
from engine.model.experts import Experts, Router
from engine.model.feed_forward import FeedForward
from engine.model.gated_delta import GatedDeltaNet
from engine.model.kimi_delta import KimiDelta
from engine.model.latent import LatentAttention
from engine.model.layers import Around, HybridLayer
from engine.model.mamba2 import Mamba2
from engine.model.varied_attention import VariedAttention

Label = tuple[int, str]
"""Which kind of layer, and the ledger's name of the op."""


@dataclass(slots=True)
class Desk:
    """Where the laps of the walk going on are written, and under which key each label goes there."""

    laps: Laps | None = None
    keys: Mapping[Label, OpKey] = field(default_factory=dict)

    def lap(self, label: Label) -> None:
        """Everything since the last lap was this."""
        assert self.laps is not None
        self.laps.lap(self.keys[label])


@dataclass(frozen=True, slots=True)
class Timed:
    """A call with a lap after it, and one before it for what led up to it."""

    call: Callable[..., Any]
    desk: Desk
    label: Label
    lead: Label | None = None

    def __call__(self, *arguments: Any) -> Any:
        """As the call itself."""
        if self.lead is not None:
            self.desk.lap(self.lead)
        result = self.call(*arguments)
        self.desk.lap(self.label)
        return result


@dataclass(slots=True)
class Dealt:
    """A router that scores as it does, and whose choice is then dealt out: so many distinct experts, evenly."""

    router: Router
    experts: int
    _choice: tuple[Tensor, Tensor] | None = None

    def deal(self, rows: int, distinct: int, device: torch.device, dtype: torch.dtype) -> None:
        """For the next call: `distinct` experts at random, each for as many of the rows' choices as the others."""
        top_k = self.router.top_k
        hit = torch.randperm(self.experts)[:distinct]
        chosen = hit[torch.arange(rows * top_k) % distinct].view(rows, top_k).to(device)
        self._choice = chosen, torch.full((rows, top_k), 1.0 / top_k, dtype=dtype, device=device)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[rows, h] -> experts [rows, k] and weights [rows, k]."""
        assert self._choice is not None
        self.router(x)
        return self._choice


class TimedLayer:
    """One layer, walked lap by lap."""

    def __init__(self, layer: HybridLayer, shape: specs.Layer, desk: Desk, kind: int) -> None:
        self._desk = desk
        self._kind = kind
        self._shape = shape
        self.dealt: Dealt | None = None
        self._mixing = None if layer.mixing is None else (self._mixer(layer.mixing[0]), *self._around(layer, 0))
        self._feeding = None if layer.feeding is None else (self._fed(layer.feeding[0]), *self._around(layer, 1))

    def __call__(self, x: Tensor, step: Any, memory: Any) -> Tensor:
        """`HybridLayer.__call__`, with a lap after each op."""
        residual = (self._kind, "residual")
        if self._mixing is not None:
            mixer, before, add = self._mixing
            x = add(x, mixer(before(x), step, memory))
            self._desk.lap(residual)
        if self._feeding is not None:
            part, before, add = self._feeding
            update = part(before(x))
            x = add(x, update)
            self._desk.lap(residual)
        return x

    def _timed(self, call: Any, name: str, lead: str | None = None) -> Any:
        return Timed(call, self._desk, (self._kind, name), None if lead is None else (self._kind, lead))

    def _around(self, layer: HybridLayer, place: int) -> tuple[Any, Any]:
        """The norm before a part, and the addition after it with the norm that Gemma has there."""
        pair = layer.feeding if place else layer.mixing
        assert pair is not None
        around: Around = pair[1]
        both = layer.mixing is not None and layer.feeding is not None
        before = "post_attention_norm" if place and both else "input_norm"
        after = "feed_forward_output_norm" if place else "mixer_output_norm"
        timed = around if around.after is None else replace(around, after=self._timed(around.after, after))
        return self._timed(around.before, before), timed.add

    def _mixer(self, part: Any) -> Any:
        timed = self._timed
        if isinstance(part, VariedAttention):
            projection = timed(part.projection, "qkv_proj")
            return replace(part, projection=projection, out=timed(part.out, "o_proj", "attention"))
        if isinstance(part, LatentAttention):
            low_rank = part.query_up is not None
            return replace(
                part,
                query=timed(part.query, "q_a_proj" if low_rank else "q_proj"),
                query_up=timed(part.query_up, "q_b_proj", "q_a_norm") if low_rank else None,
                compress=timed(part.compress, "kv_a_proj"),
                out=timed(part.out, "o_proj", "attention"),
            )
        assert isinstance(part, GatedDeltaNet | KimiDelta | Mamba2)
        recurrent: Any = part
        return replace(
            recurrent,
            in_proj=timed(part.in_proj, "in_proj"),
            conv=timed(part.conv, "conv"),
            out=timed(part.out, "out_proj", "recurrence"),
        )

    def _fed(self, part: FeedForward | Experts) -> Callable[[Tensor], Tensor]:
        shape, timed = self._shape.feed_forward, self._timed
        if isinstance(part, FeedForward):
            assert isinstance(shape, specs.Mlp)
            activation = "swiglu" if shape.gated and shape.activation == "silu" else "activation"
            return replace(part, up=timed(part.up, shape.up_op), down=timed(part.down, "down_proj", activation))
        self.dealt = Dealt(part.router, len(part.up))
        router = timed(self.dealt, "router")
        if part.shared is None:
            experts = replace(part, router=router)
            # The loop over the experts is the last thing the part does.
            routed: Callable[[Tensor], Tensor] = timed(lambda x: experts(x, []), "experts_gate_up_proj")
            return routed
        up = timed(part.shared.up, "shared_gate_up_proj", "experts_gate_up_proj")
        down = timed(part.shared.down, "shared_down_proj", "shared_activation")
        gate = None if part.shared_gate is None else timed(part.shared_gate, "shared_gate")
        experts = replace(part, router=router, shared=replace(part.shared, up=up, down=down), shared_gate=gate)
        return lambda x: experts(x, [])
