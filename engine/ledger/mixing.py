"""Ops of the mixers: attention over a cache that grows, latent attention, recurrences over a state that does not.

Formulas: 4 Hq d FLOPs a pair of query and key for attention; latent attention in the absorbed form of the DeepSeek-V2
report; the delta rule's and Mamba2's FLOPs with their parts in `engine.spec.recurrent`.
"""

from __future__ import annotations

from engine.ledger.ops import Amount, Traffic, least
from engine.ledger.writer import Step, Writer
from engine.spec import Attention, GatedDeltaNet, KimiDelta, LatentAttention, Mamba2
from engine.spec.types import Mixer

CHUNK = 64  # tokens a chunked recurrence handles at once; both transformers and fla use 64


def write_mixer(writer: Writer, mixer: Mixer) -> None:
    """The ops between a layer's first norm and its first residual."""
    if isinstance(mixer, Attention):
        _attention(writer, mixer)
    elif isinstance(mixer, LatentAttention):
        _latent(writer, mixer)
    else:
        _recurrence(writer, mixer)


def double_pairs(step: Step, window: int | None) -> Amount:
    """Twice the number of (query, key) pairs that one sequence's attention works on, so that halves stay whole."""
    if step.phase == "decode":
        seen = step.context if step.convention.attends_new else step.cached
        return 2 * (seen if window is None else least(seen, window))
    how = step.convention.pairs
    if how == "square":
        return 2 * step.tokens * step.context
    own = 1 if how == "causal" else 0  # the diagonal: T(T+1)/2, or the lesson's T^2/2
    return _within(step.context, window, own) - _within(step.cached, window, own)


def _within(tokens: Amount, window: int | None, own: int) -> Amount:
    """Twice the pairs among the first `tokens` positions."""
    if window is None:
        return tokens * (tokens + own)
    # Beyond the window a query sees W keys: W T - W(W-1)/2 pairs; below it the formula is the full one at T.
    reach = least(tokens, window)
    return 2 * reach * tokens - reach * (reach - own)


def cached_read(step: Step, window: int | None) -> Amount:
    """Cached positions a step reads; a prompt read at once has none. With a window, the new token is one of the W."""
    if window is None:
        return step.cached
    return least(step.cached, window - 1 if step.convention.attends_new else window)


def cached_written(step: Step, window: int | None) -> Amount:
    """Positions a step adds to one sequence's cache: no more than a window keeps."""
    if step.phase == "decode":
        return 1 if step.convention.decode_kv_write else 0
    return step.tokens if window is None else least(step.tokens, window)


def _attention(writer: Writer, mixer: Attention) -> None:
    step, batch = writer.step, writer.step.batch
    writer.linear("qkv_proj")
    if mixer.qk_norm:
        writer.between("q_norm", "norm", mixer.head_dim, rows=step.rows * mixer.heads)
        writer.between("k_norm", "norm", mixer.head_dim, rows=step.rows * mixer.kv_heads)
    inner = mixer.heads * mixer.head_dim
    if mixer.rotary is not None:
        writer.between("rotary", "rotary", inner + mixer.kv_width)
    position = 2 * step.formats.kv_bytes(mixer.kv_heads, mixer.head_dim)
    writer.between(
        "attention",
        "attention",
        inner,
        flops=2 * inner * double_pairs(step, mixer.window) * batch,
        context=step.context if mixer.window is None else least(step.context, mixer.window),
        moved=Traffic(
            kv_read=batch * position * cached_read(step, mixer.window),
            kv_write=batch * position * cached_written(step, mixer.window),
        ),
        memory="kv" if mixer.window is None else "window",
    )
    if mixer.output_gate:
        writer.between("output_gate", "elementwise", inner)
    writer.linear("o_proj")


def _latent(writer: Writer, mixer: LatentAttention) -> None:
    step, batch, form = writer.step, writer.step.batch, writer.step.convention.latent
    for name in ("q_proj", "q_a_proj"):
        writer.linear(name)
    if mixer.q_rank is not None:
        writer.between("q_a_norm", "norm", mixer.q_rank)
        writer.linear("q_b_proj")
    writer.linear("kv_a_proj")
    writer.between("kv_a_norm", "norm", mixer.rank)
    if mixer.rotary is not None:
        writer.between("rotary", "rotary", (mixer.heads + 1) * mixer.rope_dim)
    # Absorbed, kv_b_proj is applied to each query instead of each key, at the same cost per token of the step.
    # A prompt's keys are expanded anyway, in each pass all there are so far; absorbing pays only for a single token.
    writer.linear("kv_b_proj", step.context * batch if form == "re-expanded" or step.phase == "prefill" else step.rows)
    absorbed = form == "absorbed" and step.phase == "decode"
    per_pair = mixer.heads * (2 * mixer.rank + mixer.rope_dim) if absorbed else mixer.expanded_width
    moved = _latent_traffic(step, mixer)
    flops = per_pair * double_pairs(step, None) * batch
    width = mixer.heads * mixer.value_dim
    writer.between("attention", "attention", width, flops=flops, context=step.context, moved=moved, memory="latent")
    if mixer.output_gate:
        writer.linear("output_gate_proj")
        writer.between("output_gate", "elementwise", width)
    writer.linear("o_proj")


def latent_position_bytes(step: Step, mixer: LatentAttention) -> int:
    """Bytes one token and layer takes in the cache: the compressed vector, or keys and values for every head."""
    formats = step.formats
    if step.convention.latent != "expanded":
        return formats.kv_bytes(1, mixer.rank) + formats.kv_bytes(1, mixer.rope_dim)
    keys = formats.kv_bytes(mixer.heads, mixer.nope_dim + mixer.rope_dim)
    return keys + formats.kv_bytes(mixer.heads, mixer.value_dim)


def _latent_traffic(step: Step, mixer: LatentAttention) -> Traffic:
    position = latent_position_bytes(step, mixer)
    read, written = position * cached_read(step, None), position * cached_written(step, None)
    if step.convention.latent == "re-expanded":
        # Keys and values of all positions are spelled out to memory and read back, every step.
        expanded = step.formats.kv_bytes(1, mixer.expanded_width) * step.context
        read, written = read + expanded, written + expanded
    return Traffic(kv_read=step.batch * read, kv_write=step.batch * written)


def _recurrence(writer: Writer, mixer: GatedDeltaNet | KimiDelta | Mamba2) -> None:
    step, batch = writer.step, writer.step.batch
    writer.linear("in_proj")
    for gate in ("f_b_proj", "g_b_proj"):
        writer.linear(gate)
    columns = step.convention.conv_columns(mixer.kernel)
    conv_state = batch * mixer.conv_channels * columns * step.formats.conv_bytes
    state = batch * mixer.state_size * step.formats.state_bytes
    # A prompt starts from nothing: its first pass writes the states and does not read them.
    reads = 1 if step.phase == "decode" or not step.first else 0
    taps = 0 if step.convention.vector_flops else 2 * mixer.kernel * mixer.conv_channels * step.rows
    moved = Traffic(conv_read=reads * conv_state, conv_write=conv_state)
    writer.between("conv", "conv", mixer.conv_channels, flops=taps, moved=moved)
    moved = Traffic(state_read=reads * state, state_write=state)
    writer.between("recurrence", "recurrence", mixer.conv_channels, flops=_state_flops(step, mixer), moved=moved)
    width = mixer.inner if isinstance(mixer, Mamba2) else writer.stored["out_proj"].k
    writer.between("gated_norm", "norm", width)
    writer.linear("out_proj")


def _state_flops(step: Step, mixer: GatedDeltaNet | KimiDelta | Mamba2) -> Amount:
    if step.convention.recurrence == "none":
        return 0
    if step.convention.recurrence == "chunked" and step.phase == "prefill":
        return mixer.chunked_flops(CHUNK) * step.rows
    return mixer.recurrence_flops() * step.rows
