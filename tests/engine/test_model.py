"""Loading and holding a model: what is resident, what is refused, and that no context leaks into the next."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_helpers import SIZES, engine_of, reference

from engine import spec as specs
from engine.cache import CacheBytes
from engine.errors import LabError
from engine.model import Model


@pytest.fixture(scope="module")
def theirs() -> Any:
    return reference("llama")


def ids(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, SIZES["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_resident_bytes_are_those_of_the_checkpoint(kind: str, tied: bool, dtype: torch.dtype) -> None:
    theirs = reference(kind, tie_word_embeddings=tied)
    parameters = sum(parameter.numel() for parameter in theirs.parameters())  # counts a tied head once
    assert engine_of(theirs, dtype=dtype).resident_weight_bytes == parameters * dtype.itemsize


def test_weights_are_copies(theirs: Any) -> None:
    tensors = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    model = Model.from_tensors(specs.read(theirs.config.to_dict()), tensors)
    before = model.prefill(ids(1, 5))
    for tensor in tensors.values():
        tensor.zero_()
    assert torch.equal(model.prefill(ids(1, 5)), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cache_bytes(theirs: Any, dtype: torch.dtype) -> None:
    model = engine_of(theirs, dtype=dtype, max_tokens=40)
    assert model.cache.bytes == CacheBytes()
    model.prefill(ids(3, 5))
    model.decode(ids(3, 1)[:, 0])
    layers, heads, size = SIZES["num_hidden_layers"], SIZES["num_key_value_heads"], 8
    position = layers * 2 * 3 * heads * size * dtype.itemsize
    assert model.cache.bytes == CacheBytes(kv_allocated=40 * position, kv_filled=6 * position)
    model.prefill(ids(1, 5), positions=7)
    assert model.cache.bytes == CacheBytes(kv_allocated=7 * position // 3, kv_filled=5 * position // 3)


def test_nothing_of_an_earlier_context_is_seen(theirs: Any) -> None:
    fresh = engine_of(theirs, max_tokens=60)
    expected = [fresh.prefill(ids(2, 4, seed=1)), fresh.decode(ids(2, 1, seed=2)[:, 0])]
    used = engine_of(theirs, max_tokens=60)
    used.prefill(ids(2, 50))
    used.decode(ids(2, 1)[:, 0])
    again = [used.prefill(ids(2, 4, seed=1)), used.decode(ids(2, 1, seed=2)[:, 0])]
    assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))


def test_reset_needs_a_new_prefill(theirs: Any) -> None:
    model = engine_of(theirs)
    first = model.prefill(ids(1, 6))
    model.reset()
    assert model.cache.bytes.kv_filled == 0
    with pytest.raises(LabError, match="prefill first"):
        model.decode(torch.tensor([1]))
    assert torch.equal(model.prefill(ids(1, 6)), first)


def test_decode_refuses_another_batch(theirs: Any) -> None:
    model = engine_of(theirs)
    model.prefill(ids(2, 6))
    with pytest.raises(LabError, match="same batch"):
        model.decode(torch.tensor([1, 2, 3]))


def test_context_limit(theirs: Any) -> None:
    model = engine_of(theirs, max_tokens=8)
    model.prefill(ids(1, 7))
    model.decode(torch.tensor([1]))
    with pytest.raises(LabError, match="8 positions"):
        model.decode(torch.tensor([1]))
    for refused in (ids(1, 9), ids(1, 0)):
        with pytest.raises(LabError):
            model.prefill(refused)
    with pytest.raises(LabError, match="limited to 8"):
        model.prefill(ids(1, 3), positions=9)
    for wrong in (0, SIZES["max_position_embeddings"] + 1):
        with pytest.raises(LabError, match="this model takes 1 to 256"):
            engine_of(theirs, max_tokens=wrong)


BAMBA = {"mamba_n_heads": 6, "mamba_d_state": 8}
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a family known to the ledger only": ("bamba", BAMBA, "does not run BambaForCausalLM; it runs Llama"),
    "another rotary": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
        "kind dynamic",
    ),
    "another activation": ("llama", {"hidden_act": "mish"}, "activation mish"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_engine_does_not_compute_is_refused(case: str, theirs: Any) -> None:
    kind, changes, says = REFUSED[case]
    config = {**theirs.config.to_dict(), **changes, "model_type": kind, "architectures": [f"{kind.title()}ForCausalLM"]}
    with pytest.raises(LabError, match=says):
        Model.from_tensors(specs.read(config), theirs.state_dict())


def test_a_missing_tensor_is_named(theirs: Any) -> None:
    tensors = theirs.state_dict()
    del tensors["model.layers.1.self_attn.k_proj.weight"]
    with pytest.raises(LabError, match=r"no tensor model\.layers\.1\.self_attn\.k_proj\.weight"):
        Model.from_tensors(specs.read(theirs.config.to_dict()), tensors)
