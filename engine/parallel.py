"""Tensor parallelism over n devices, as an estimate: one device's share is itself a Spec, and counted as one.

Matrices and heads are split; norms, routers, q/k norms, and latent attention's compressions with their cache are on
every device. Key/value heads are split while there are enough of them, then repeated, one a device: the cache stops
shrinking. Sizes that n does not divide are padded. Every layer ends its two halves with an all-reduce of the hidden
states; the head's slices of logits are gathered. Knows no device and measures nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from engine.errors import LabError
from engine.ledger import Amount
from engine.spec import Attention, Experts, Extra, GatedDeltaNet, KimiDelta, LatentAttention, Layer, Mamba2, Mlp, Spec
from engine.spec.types import FeedForward, Mixer

HIDDEN_BYTES = 2  # hidden states and logits travel in 16 bits


@dataclass(frozen=True, slots=True)
class Link:
    """What joins the devices. The defaults are an assumption: NVLink 4 in one direction, 10 us a collective call.

    call_s matters more than bytes_per_s at decode, where an all-reduce moves a few kilobytes.
    """

    bytes_per_s: float = 450e9
    call_s: float = 10e-6


@lru_cache(maxsize=256)
def shard(spec: Spec, devices: int) -> Spec:
    """One device's share of a model.

    Raises:
        LabError: more devices than a layer has heads.
    """
    check(spec, devices)
    if devices == 1:
        return spec
    return replace(
        spec,
        layers=tuple(Layer(_mixer(layer.mixer, devices), _fed(layer.feed_forward, devices)) for layer in spec.layers),
        vocab_size=_part(spec.vocab_size, devices),
        extras=tuple(Extra(extra.name, _part(extra.parameters, devices)) for extra in spec.extras),
    )


def check(spec: Spec, devices: int) -> None:
    """Let pass a number of devices that a model can be split over.

    Raises:
        LabError: it cannot; the sentence says how many can.
    """
    most = min((_most(layer.mixer) for layer in spec.layers if layer.mixer is not None), default=1)
    if isinstance(devices, bool) or not isinstance(devices, int) or not 1 <= devices <= most:
        raise LabError(
            "{devices} devices cannot share this model; name 1 to {most}, since each needs a head of its own.",
            devices=str(devices)[:40],
            most=most,
        )


def _most(mixer: Mixer) -> int:
    return mixer.value_heads if isinstance(mixer, GatedDeltaNet) else int(getattr(mixer, "heads", 1))


def communication_s(spec: Spec, rows: Amount, sequences: Amount, devices: int, link: Link) -> float:
    """Time of a step's collectives: a ring all-reduce of `rows` hidden states after every part, a gather of logits."""
    if devices == 1:
        return 0.0
    parts = sum((layer.mixer is not None) + (layer.feed_forward is not None) for layer in spec.layers)
    around = (devices - 1) / devices
    reduced = 2 * around * rows * spec.hidden_size * HIDDEN_BYTES / link.bytes_per_s
    gathered = around * sequences * spec.vocab_size * HIDDEN_BYTES / link.bytes_per_s
    return float(parts * (reduced + link.call_s) + gathered + link.call_s)


def _part(size: int, devices: int) -> int:
    """A device's part of `size`, rounded up: what n does not divide is padded."""
    return -(-size // devices)


def _mixer(mixer: Mixer | None, devices: int) -> Mixer | None:
    if isinstance(mixer, Attention):
        return replace(mixer, heads=_part(mixer.heads, devices), kv_heads=_part(mixer.kv_heads, devices))
    if isinstance(mixer, LatentAttention | KimiDelta):
        return replace(mixer, heads=_part(mixer.heads, devices))
    if isinstance(mixer, GatedDeltaNet):
        keys, values = _part(mixer.key_heads, devices), _part(mixer.value_heads, devices)
        return replace(mixer, key_heads=keys, value_heads=values)
    if isinstance(mixer, Mamba2):
        return replace(mixer, heads=_part(mixer.heads, devices), groups=_part(mixer.groups, devices))
    return None


def _fed(part: FeedForward | None, devices: int) -> FeedForward | None:
    if isinstance(part, Mlp):
        return replace(part, width=_part(part.width, devices))
    if isinstance(part, Experts):
        shared = _part(part.shared_width, devices)
        return replace(part, width=_part(part.width, devices), shared_width=shared)
    return None
