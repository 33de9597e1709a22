"""Mistakes that are easily made in each family, made on purpose: every one has to break parity with transformers.

What breaks nothing here would go unseen in us. Each mistake changes the recipe, the dimensions, the weights as they
are read, or one function.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name PyTorch's own documentation gives it
from family_helpers import config_of, reference, tokens
from model_helpers import engine_logits, reference_logits, worst
from torch import Tensor

from engine import spec as specs
from engine.model import (
    delta_rule,
    experts,
    gated_delta,
    kimi_delta,
    latent,
    mamba2,
    names,
    ops,
    short_conv,
    varied_attention,
    window,
)
from engine.model.hybrid import HybridDecoder

TOLERANCE = 1e-4
PROMPT, LENGTH = 20, 23

Spec = specs.Spec
Seed = Callable[[Spec, dict[str, Tensor], pytest.MonkeyPatch], Spec | None]


# ---- ways to go wrong


def recipe(**changes: Any) -> Seed:
    """A setting of the recipe that is not the family's."""
    return lambda spec, tensors, patch: dataclasses.replace(spec, recipe=dataclasses.replace(spec.recipe, **changes))


def router(**changes: Any) -> Seed:
    """A router's setting that is not the family's."""

    def seed(spec: Spec, tensors: dict[str, Tensor], patch: pytest.MonkeyPatch) -> Spec:
        changed = dataclasses.replace(spec.recipe.router, **changes)
        return dataclasses.replace(spec, recipe=dataclasses.replace(spec.recipe, router=changed))

    return seed


def layers(change: Callable[[specs.Layer], specs.Layer]) -> Seed:
    """Dimensions that are not the config's."""
    return lambda spec, tensors, patch: dataclasses.replace(spec, layers=tuple(change(one) for one in spec.layers))


def mixer(kind: type, **changes: Any) -> Seed:
    """A field of every mixer of one kind, where it is in use."""

    def change(layer: specs.Layer) -> specs.Layer:
        if not isinstance(layer.mixer, kind) or any(getattr(layer.mixer, name) is None for name in changes):
            return layer
        return dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, **changes))  # type: ignore[type-var]

    return layers(change)


def rotary(**changes: Any) -> Seed:
    """A field of the rotary positions of every layer that has them."""

    def change(layer: specs.Layer) -> specs.Layer:
        old = getattr(layer.mixer, "rotary", None)
        if old is None:
            return layer
        new = dataclasses.replace(layer.mixer, rotary=dataclasses.replace(old, **changes))  # type: ignore[type-var]
        return dataclasses.replace(layer, mixer=new)

    return layers(change)


def weights(ending: str, change: Callable[[Tensor], Tensor]) -> Seed:
    """Tensors whose names end so, changed before they are read."""

    def seed(spec: Spec, tensors: dict[str, Tensor], patch: pytest.MonkeyPatch) -> None:
        matching = [name for name in tensors if name.endswith(ending)]
        assert matching
        for name in matching:
            tensors[name] = change(tensors[name])

    return seed


def function(owner: Any, name: str, seeded: Any) -> Seed:
    """Another function in its place; it is given the right one to lean on."""

    def seed(spec: Spec, tensors: dict[str, Tensor], patch: pytest.MonkeyPatch) -> None:
        patch.setattr(owner, name, functools.partial(seeded, getattr(owner, name)))

    return seed


def method(owner: type, name: str, seeded: Callable[..., Any]) -> Seed:
    """Another method in its place; it is given the right one to lean on."""

    def seed(spec: Spec, tensors: dict[str, Tensor], patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, name)
        patch.setattr(owner, name, lambda self, *given: seeded(functools.partial(right, self), *given))

    return seed


def curves(module: Any, **changed: Any) -> Seed:
    """Another curve where a file uses this one."""
    kept = {name: getattr(F, name) for name in ("silu", "softplus", "rms_norm", "scaled_dot_product_attention")}
    return lambda spec, tensors, patch: patch.setattr(module, "F", SimpleNamespace(**{**kept, **changed}))


# ---- the mistakes


def tiled_key_heads(right: Any, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = right(mixed)
    return q[:, :, ::3].repeat(1, 1, 3, 1), k[:, :, ::3].repeat(1, 1, 3, 1), v


def unscaled_queries(right: Any, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = right(mixed)
    return q * q.shape[-1] ** 0.5, k, v


def keys_first(right: Any, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = right(mixed)
    return k * k.shape[-1] ** -0.5, q * k.shape[-1] ** 0.5, v


def not_decayed_before(
    right: Any, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, strength: Tensor, state: Tensor
) -> Tensor:
    """The correction made against the state as it was before it was let decay."""
    written = strength * (v - (k[:, :, None] @ state)[:, :, 0])
    state.mul_(log_decay.exp()[..., None]).add_(k[..., None] * written[:, :, None])
    return (q[:, :, None] @ state)[:, :, 0]


def read_before_write(right: Any, q: Tensor, *rest: Tensor) -> Tensor:
    read = (q[:, :, None] @ (rest[-1] * rest[2].exp()[..., None]))[:, :, 0]
    right(q, *rest)
    return read


def rounded_state(right: Any, *given: Tensor) -> Tensor:
    out: Tensor = right(*given)
    given[-1].copy_(given[-1].bfloat16())
    return out


def no_write_strength(
    right: Any, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, s: Tensor
) -> Tensor:
    out: Tensor = right(q, k, v, decay, torch.ones_like(strength), s)
    return out


def one_decay_a_head(right: Any, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, strength: Tensor, s: Tensor) -> Tensor:
    out: Tensor = right(q, k, v, decay.mean(-1, keepdim=True).expand_as(decay), strength, s)
    return out


def forgotten_conv(right: Any, inputs: Tensor, state: Tensor) -> Tensor:
    out: Tensor = right(inputs, state.zero_())
    return out


def swapped_halves(right: Any, projection: Any, spec: Any) -> Any:
    """Gate first and query second."""
    weight = projection.weight.clone()
    pairs = weight[: spec.q_width].view(spec.heads, 2, spec.head_dim, -1)
    weight[: spec.q_width] = pairs.flip(1).reshape(spec.q_width, -1)
    return right(dataclasses.replace(projection, weight=weight), spec)


def all_gates_after_all_queries(right: Any, projection: Any, spec: Any) -> Any:
    """The first half of the rows taken for queries, the second for gates, instead of head by head."""
    weight, half = projection.weight, spec.q_width // 2
    order = torch.cat((weight[:half], weight[spec.q_width :], weight[half : spec.q_width]))
    return dataclasses.replace(projection, weight=order)


def no_gate(right: Any, heads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
    q, k, v, _ = right(heads)
    return q, k, v, None


def interleaved(right: Any, heads: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    even, odd, half = heads[..., ::2].clone(), heads[..., 1::2].clone(), heads.shape[-1] // 2
    c, s = cos[..., :half], signed_sin[..., half:]
    heads[..., ::2], heads[..., 1::2] = even * c - odd * s, odd * c + even * s
    return heads


def same_norms(right: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, weight.shape, torch.ones_like(weight), eps)


def tangled(right: Any, stored: Tensor, name: str) -> Tensor:
    return stored if name.endswith("_bias") else stored.mT


def in_store_order(right: Any, fused: Tensor, spec: Any) -> list[Tensor]:
    """Qwen3-Next's fused matrix cut as if all q, then all k, v and z followed each other."""
    delta = spec.layers[0].mixer
    return list(torch.split(fused, [delta.conv_channels, delta.value_heads * delta.value_dim]))


def no_sinks(right: Any, scores: Tensor, values: Tensor, sinks: Tensor) -> Tensor:
    out: Tensor = right(scores, values, torch.full_like(sinks, -1e9))
    return out


def corrected_weights(right: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """The correction of the choice kept in the weights as well."""
    chosen, weight = right(x)
    return chosen, weight * 1.1


def stale_ring(right: Any, ring: Tensor, new: Tensor, start: int) -> Any:
    return right(ring, new, start + 1 if start else start)


def gate_after_norm(right: Any, out: Tensor, gate: Tensor) -> Tensor:
    normed: Tensor = right(out, torch.full_like(gate, 30.0)) * F.silu(gate)
    return normed


def lost_position_key(right: Any, queries: Tensor, filled: Tensor) -> Tensor:
    silent = filled.clone()
    silent[..., -8:] = 0
    out: Tensor = right(queries, silent)
    return out


gdn, attn = gated_delta.GatedDeltaNet, varied_attention.VariedAttention
BUGS: dict[str, tuple[str, Seed]] = {
    # Gated DeltaNet
    "key heads tiled, not repeated": ("qwen3.5", method(gdn, "_heads", tiled_key_heads)),
    "delta queries not scaled": ("qwen3.5", method(gdn, "_heads", unscaled_queries)),
    "q and k taken in the wrong order": ("qwen3.5", method(gdn, "_heads", keys_first)),
    "q and k not normalised": ("qwen3.5", function(delta_rule, "normalise", lambda right, x: x.float())),
    "state not decayed before the delta": ("qwen3.5", function(delta_rule, "step", not_decayed_before)),
    "state read before the write": ("qwen3.5", function(delta_rule, "step", read_before_write)),
    "bf16 state": ("qwen3.5", function(delta_rule, "step", rounded_state)),
    "bf16 state between chunks": ("qwen3.5", function(delta_rule, "chunks", rounded_state)),
    "write strength left out": ("qwen3.5", function(delta_rule, "step", no_write_strength)),
    "A_log not exponentiated": ("qwen3.5", weights("A_log", lambda a: a.abs().log())),
    "dt_bias left out": ("qwen3.5", weights("dt_bias", torch.zeros_like)),
    "decay by exp, not softplus": ("qwen3.5", curves(gated_delta, softplus=torch.exp)),
    "SiLU left out after the convolution": ("qwen3.5", curves(short_conv, silu=lambda x, inplace: x)),
    "convolution taps reversed": ("qwen3.5", weights("conv1d.weight", lambda w: w.flip(-1))),
    "conv state forgotten": ("qwen3.5", method(short_conv.ShortConv, "__call__", forgotten_conv)),
    "delta gate sigmoid, not SiLU": ("qwen3.5", curves(gated_delta, silu=torch.sigmoid)),
    "delta norm zero-centred like the others": ("qwen3.5", weights("linear_attn.norm.weight", lambda w: w + 1)),
    "norms not zero-centred": ("qwen3.5", recipe(zero_centred=False)),
    "attention gate from the wrong half": ("qwen3.5", function(varied_attention, "_gates_last", swapped_halves)),
    "gates behind all queries": ("qwen3.5", function(varied_attention, "_gates_last", all_gates_after_all_queries)),
    "attention gate left out": ("qwen3.5", method(attn, "_split", no_gate)),
    "rotary over the whole head": ("qwen3.5", rotary(dims=32)),
    "rotary interleaved": ("qwen3.5", function(ops, "rotate_heads_", interleaved)),
    "rotary base of Llama": ("qwen3.5", rotary(theta=10_000.0)),
    "fused projection read in store order": ("qwen3-next", function(names, "_by_key_head", in_store_order)),
    "b and a swapped": ("qwen3-next", function(names, "_halves", lambda right, *given: right(*given)[::-1])),
    # experts
    "top-k weights not renormalised": ("qwen3-moe", router(renormalise=False)),
    "top-k weights renormalised": ("qwen3-moe-plain", router(renormalise=True)),
    "softmax before the choice": ("gpt-oss", router(rule="softmax", renormalise=False)),
    "shared gate left out": ("qwen3.5-moe", weights("shared_expert_gate.weight", torch.zeros_like)),
    "gate and up not told apart": ("gpt-oss", function(names, "_untangled", tangled)),
    "clamp left out": ("gpt-oss", recipe(clamp=1e9)),
    "plain SiLU in gpt-oss": ("gpt-oss", recipe(swish=1.0)),
    "router bias dropped": ("gpt-oss", weights("router.bias", torch.zeros_like)),
    "expert groups ignored": ("deepseek-v3", router(groups=1)),
    "routed scaling left out": ("deepseek-v3", router(scale=1.0)),
    "correction of the choice left out": ("deepseek-v3", weights("e_score_correction_bias", torch.zeros_like)),
    "correction kept in the weights": ("kimi-linear", method(experts.Router, "__call__", corrected_weights)),
    # windows, sinks, two bases
    "window one short": ("mistral-v0.1", mixer(specs.Attention, window=15)),
    "window one long": ("gemma3", mixer(specs.Attention, window=10)),
    "window in no layer": ("gemma3", mixer(specs.Attention, window=256)),
    "ring off by one in decode": ("mistral-v0.1", function(window, "write_ring_", stale_ring)),
    "sinks left out": ("gpt-oss", function(window, "_with_sinks", no_sinks)),
    "one rotary base for all layers": ("gemma3", rotary(theta=1e6)),
    "embedding not scaled": ("gemma3", recipe(embedding_scale=1.0)),
    "scores scaled by the head": ("gemma3", recipe(attention_scale=None)),
    "YaRN left out": ("gpt-oss", rotary(kind="default")),
    "YaRN's ramp moved to whole pairs": ("gpt-oss", rotary(truncate=True)),
    "YaRN's angles not stretched": ("gpt-oss", rotary(attention_factor=1.0)),
    # latent attention
    "rotary halves in DeepSeek's pairs": ("deepseek-v3", recipe(interleaved_rotary=False)),
    "YaRN's scores not stretched": ("deepseek-v3", rotary(score_factor=1.0)),
    "position key left out": ("deepseek-v3", method(latent.LatentAttention, "_absorbed", lost_position_key)),
    "latent not normalised": ("deepseek-v3", weights("kv_a_layernorm.weight", torch.ones_like)),
    "rotary where Kimi has none": (
        "kimi-linear",
        layers(
            lambda one: (
                dataclasses.replace(one, mixer=dataclasses.replace(one.mixer, rotary=specs.Rotary(10_000.0, 8)))
                if isinstance(one.mixer, specs.LatentAttention)
                else one
            )
        ),
    ),
    # Kimi delta, Mamba2, the rest
    "one decay a head in Kimi": ("kimi-linear", function(kimi_delta, "_chunks", one_decay_a_head)),
    "Kimi's dt_bias left out": ("kimi-linear", weights("dt_bias", torch.zeros_like)),
    "skip left out": ("nemotron-h", weights(".D", torch.zeros_like)),
    "norm over all groups together": ("nemotron-h", recipe(norm_groups=1)),
    "gate after the norm": ("granite-hybrid", method(mamba2.Mamba2, "_gated_norm", gate_after_norm)),
    "convolution bias dropped": ("nemotron-h", weights("conv1d.bias", torch.zeros_like)),
    "residual not scaled": ("granite-hybrid", recipe(residual_scale=1.0)),
    "logits not scaled": ("granite-hybrid", recipe(logits_divisor=1.0)),
    "scores scaled by the head in Granite": ("granite-hybrid", recipe(attention_scale=None)),
    "positions left out": ("gpt2", weights("wpe.weight", torch.zeros_like)),
    "biases of the norms dropped": ("gpt2", weights("ln_1.bias", torch.zeros_like)),
}


@functools.cache
def expected(kind: str) -> list[Tensor]:
    """The reference's logits for the one sequence all mistakes are tried on."""
    return reference_logits(reference(kind), tokens(1, LENGTH), PROMPT)


def logits(kind: str, seed: Seed, patch: pytest.MonkeyPatch) -> list[Tensor]:
    """The engine's logits for the same sequence, with the mistake made."""
    patch.setenv("ROOFLINE_LAB_KERNELS", "torch")  # mistakes are made in the plain code
    theirs = reference(kind)
    spec, tensors = specs.read(config_of(theirs)), dict(theirs.state_dict())
    spec = seed(spec, tensors, patch) or spec
    return engine_logits(HybridDecoder.from_tensors(spec, tensors), tokens(1, LENGTH), PROMPT)


@pytest.mark.parametrize("bug", BUGS)
def test_a_seeded_bug_breaks_parity(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, seed = BUGS[bug]
    assert worst(logits(kind, seed, monkeypatch), expected(kind)) > TOLERANCE


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in BUGS.values()}))
def test_without_a_bug_there_is_parity(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the test above would show nothing."""
    assert worst(logits(kind, lambda *_: None, monkeypatch), expected(kind)) < TOLERANCE / 10
