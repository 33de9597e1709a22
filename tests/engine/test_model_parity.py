"""The engine's logits against transformers', through prefill and cached steps, and the bugs this would catch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from model_helpers import SIZES, engine_logits, engine_of, reference, reference_logits, worst
from torch import Tensor

from engine import spec as specs
from engine.model import Model, attention, mlp, ops, rotary

CACHED_STEPS = 4
PROMPTS = (1, 3, 64, 65, 130)
TOLERANCE = 1e-4

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied-mha": ("llama", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    "llama-mqa-all-biases": ("llama", {"num_key_value_heads": 1, "attention_bias": True, "mlp_bias": True}),
    "llama-3.1": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama-linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}}),
    "mistral": ("mistral", {"sliding_window": None, "head_dim": 16}),
    "qwen2": ("qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen3": ("qwen3", {"head_dim": 16}),
}


@pytest.fixture(scope="module")
def references() -> dict[str, Any]:
    """transformers' models, each made once."""
    return {name: reference(kind, **changes) for name, (kind, changes) in MODELS.items()}


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, SIZES["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("kind", MODELS)
def test_logits_equal_transformers(kind: str, references: dict[str, Any]) -> None:
    theirs = references[kind]
    ours = engine_of(theirs)
    for batch in (1, 3):
        for prompt in PROMPTS:
            ids = tokens(batch, prompt + CACHED_STEPS)
            expected = reference_logits(theirs, ids, prompt)
            found = engine_logits(ours, ids, prompt)
            assert worst(found, expected) < TOLERANCE, (batch, prompt)
            assert all(torch.equal(a.argmax(-1), b.argmax(-1)) for a, b in zip(found, expected, strict=True))


def test_bf16_stays_near_fp32(references: dict[str, Any]) -> None:
    """bf16 keeps 8 bits of a number: logits agree to a few hundredths, no closer than rounding allows."""
    theirs = references["qwen3"]
    ids = tokens(2, 20)
    exact = engine_logits(engine_of(theirs), ids, 16)
    found = engine_logits(engine_of(theirs, dtype=torch.bfloat16), ids, 16)
    assert all(logits.dtype == torch.float32 for logits in found)
    assert 1e-4 < worst(found, exact) < 0.1
    assert worst(found, reference_logits(theirs.to(torch.bfloat16), ids, 16)) < 0.1
    theirs.float()


def test_continued_steps_equal_one_prefill(references: dict[str, Any]) -> None:
    model = engine_of(references["llama"])
    ids = tokens(2, 40)
    stepped = engine_logits(model, ids, 1)[-1]
    assert worst([stepped], [model.prefill(ids)]) < 1e-5


# ---- seeded bugs: each must break parity, or the test above would not see it in us


def _mixer(change: dict[str, Any]) -> Callable[[specs.Spec], specs.Spec]:
    def seeded(spec: specs.Spec) -> specs.Spec:
        layers = tuple(
            dataclasses.replace(layer, mixer=dataclasses.replace(layer.mixer, **change))  # type: ignore[type-var]
            for layer in spec.layers
        )
        return dataclasses.replace(spec, layers=layers)

    return seeded


def _rotary(change: dict[str, Any]) -> Callable[[specs.Spec], specs.Spec]:
    def seeded(spec: specs.Spec) -> specs.Spec:
        mixer = spec.layers[0].mixer
        assert isinstance(mixer, specs.Attention)
        assert mixer.rotary is not None
        return _mixer({"rotary": dataclasses.replace(mixer.rotary, **change)})(spec)

    return seeded


SPEC_BUGS: dict[str, tuple[str, Callable[[specs.Spec], specs.Spec]]] = {
    "wrong rotary base": ("llama", _rotary({"theta": 500_000.0})),
    "llama3 scaling ignored": ("llama-3.1", _rotary({"kind": "default"})),
    "llama3 factors swapped": ("llama-3.1", _rotary({"low_freq_factor": 0.25, "high_freq_factor": 1.0})),
    "linear scaling ignored": ("llama-linear", _rotary({"kind": "default"})),
    "q and k norm left out": ("qwen3", _mixer({"qk_norm": False})),
    "q, k and v bias dropped": ("qwen2", _mixer({"qkv_bias": False})),
    "output bias dropped": ("llama-mqa-all-biases", _mixer({"o_bias": False})),
    "epsilon left out": ("llama", lambda spec: dataclasses.replace(spec, norm=specs.Norm(eps=1e-6))),
    "head taken for tied": ("llama", lambda spec: dataclasses.replace(spec, tied=True)),
}


@pytest.mark.parametrize("bug", SPEC_BUGS)
def test_a_seeded_bug_in_the_dimensions_breaks_parity(bug: str, references: dict[str, Any]) -> None:
    kind, seeded = SPEC_BUGS[bug]
    theirs = references[kind]
    spec = seeded(specs.read(theirs.config.to_dict()))
    ids = tokens(1, 20)
    found = engine_logits(Model.from_tensors(spec, theirs.state_dict()), ids, 16)
    assert worst(found, reference_logits(theirs, ids, 16)) > TOLERANCE


def _tiled_decode(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Query head i reads key head i mod Hkv, where grouping means i div (Hq/Hkv)."""
    repeats = queries.shape[2] // keys.shape[1]
    return torch.nn.functional.scaled_dot_product_attention(
        queries.transpose(1, 2), keys.repeat(1, repeats, 1, 1), values.repeat(1, repeats, 1, 1)
    ).flatten(1)


def _interleaved(heads: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """Pairs (0,1), (2,3), ... in place of (i, i + d/2)."""
    even, odd = heads[..., ::2].clone(), heads[..., 1::2].clone()
    half = heads.shape[-1] // 2
    c, s = cos[..., :half], signed_sin[..., half:]
    heads[..., ::2], heads[..., 1::2] = even * c - odd * s, odd * c + even * s
    return heads


def _swapped_values(new: Tensor, heads: Tensor) -> None:
    new.copy_(heads.unflatten(2, (2, -1)).permute(2, 0, 3, 1, 4).flip(0))


def _unmasked(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    mixed = torch.nn.functional.scaled_dot_product_attention(queries.transpose(1, 2), keys, values, enable_gqa=True)
    return mixed.transpose(1, 2).flatten(2).flatten(0, 1)


def _unscaled(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    return ops_decode(queries * queries.shape[-1] ** 0.5, keys, values)


def _up_first(gate_up: Tensor) -> Tensor:
    up, gate = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def _zero_centred(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return torch.nn.functional.rms_norm(x, weight.shape, weight + 1, eps)


def _positions_off_by_one(self: rotary.RotaryTable, start: int, end: int) -> tuple[Tensor, Tensor]:
    # Rotary positions are relative: only a shift between prompt and later steps can show.
    shift = 1 if end - start == 1 else 0
    return self._cos[start + shift : end + shift], self._signed_sin[start + shift : end + shift]


ops_decode = ops.decode_attention

OP_BUGS: dict[str, tuple[object, str, Callable[..., Any]]] = {
    "key heads tiled, not grouped": (ops, "decode_attention", _tiled_decode),
    "interleaved rotary": (ops, "rotate_heads_", _interleaved),
    "rotary left out": (ops, "rotate_heads_", lambda heads, cos, sin: heads),
    "keys and values swapped": (ops, "write_cache_", _swapped_values),
    "prompt not causal": (ops, "prefill_attention", _unmasked),
    "attention not scaled": (ops, "decode_attention", _unscaled),
    "gate and up swapped": (ops, "swiglu_", _up_first),
    "norm zero-centred": (ops, "rms_norm", _zero_centred),
    "residual left out": (ops, "add_residual_", lambda x, update: update),
    "position off by one in decode": (rotary.RotaryTable, "at", _positions_off_by_one),
}


@pytest.mark.parametrize("bug", OP_BUGS)
def test_a_seeded_bug_in_an_op_breaks_parity(
    bug: str, references: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, seeded = OP_BUGS[bug]
    assert attention.ops is ops
    assert mlp.ops is ops
    theirs = references["llama"]
    ours = engine_of(theirs)
    monkeypatch.setattr(owner, name, seeded)
    ids = tokens(2, 20)
    assert worst(engine_logits(ours, ids, 16), reference_logits(theirs, ids, 16)) > TOLERANCE
