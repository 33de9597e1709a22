"""Bytes held while a model runs: weights, KV cache as allocated and as filled, recurrent state, conv state."""

from __future__ import annotations

from dataclasses import dataclass

from engine.ledger.convention import ENGINE, Convention, named
from engine.ledger.formats import BF16, PLAIN_BYTES, Formats
from engine.ledger.mixing import latent_position_bytes
from engine.ledger.ops import Amount, least
from engine.ledger.plan import plan
from engine.ledger.writer import Step
from engine.spec import Attention, GatedDeltaNet, KimiDelta, LatentAttention, Mamba2, Spec


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes held. `kv_filled` is the part of `kv_allocated` that holds positions already seen.

    window, latent: the parts of `kv_allocated` that lie in sliding windows, and that are compressed vectors.
    """

    weights: Amount
    kv_allocated: Amount
    kv_filled: Amount
    state: Amount
    conv: Amount
    window: Amount = 0
    latent: Amount = 0

    @property
    def per_batch(self) -> Amount:
        """What the sequences take together, beside the weights."""
        return self.kv_allocated + self.state + self.conv

    @property
    def total(self) -> Amount:
        """Everything held."""
        return self.weights + self.per_batch

    def as_dict(self) -> dict[str, Amount]:
        """The five numbers of a step's `resident_bytes`."""
        held = {"weights": self.weights, "kv_allocated": self.kv_allocated, "kv_filled": self.kv_filled}
        return held | {"state": self.state, "conv": self.conv}


def resident(
    spec: Spec,
    *,
    batch: Amount = 1,
    max_tokens: Amount = 0,
    filled: Amount | None = None,
    formats: Formats = BF16,
    convention: str | Convention = ENGINE,
    whole_checkpoint: bool = False,
) -> Resident:
    """Bytes held for `batch` sequences of up to `max_tokens` positions, of which `filled` (default all) are in use.

    whole_checkpoint: also the vision tower and MTP layers, which a text engine may leave out.

    Raises:
        LabError: no convention of that name.
    """
    step = Step("decode", 1, 1, 1, formats, named(convention))
    used = max_tokens if filled is None else filled
    weights = plan(spec, formats).trunk_bytes
    if whole_checkpoint:
        weights += sum(extra.parameters for extra in spec.extras) * PLAIN_BYTES[formats.plain_format]
    kv_allocated = kv_filled = state = conv = window = latent = 0
    for layer, count in spec.groups:
        mixer, many = layer.mixer, count * batch
        if isinstance(mixer, Attention | LatentAttention):
            allocated = many * _kv_bytes(step, mixer, max_tokens)
            kv_allocated = kv_allocated + allocated
            kv_filled = kv_filled + many * _kv_bytes(step, mixer, used)
            if isinstance(mixer, LatentAttention):
                latent = latent + allocated
            elif mixer.window is not None:
                window = window + allocated
        elif isinstance(mixer, GatedDeltaNet | KimiDelta | Mamba2):
            state = state + many * mixer.state_size * formats.state_bytes
            columns = step.convention.conv_columns(mixer.kernel)
            conv = conv + many * mixer.conv_channels * columns * formats.conv_bytes
    return Resident(weights, kv_allocated, kv_filled, state, conv, window, latent)


def _kv_bytes(step: Step, mixer: Attention | LatentAttention, tokens: Amount) -> Amount:
    """Bytes of one layer's cache of one sequence with `tokens` positions; a window keeps no more than itself."""
    if isinstance(mixer, LatentAttention):
        return latent_position_bytes(step, mixer) * tokens
    if mixer.window is not None:
        tokens = least(tokens, mixer.window if step.convention.window == "W" else mixer.window - 1)
    return 2 * step.formats.kv_bytes(mixer.kv_heads, mixer.head_dim) * tokens
