"""Every cache, state and weight tensor of every family has the bytes that the ledger says, at several contexts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from family_helpers import CONFIGS, config_of, engine_of, reference, tokens
from torch import Tensor

from engine import ledger
from engine import spec as specs
from engine.hybrid_cache import HybridCache
from engine.ledger import Formats
from engine.model.hybrid import HybridDecoder

POSITIONS = 40
BATCH = 2


def tensors_in(item: object) -> Iterator[Tensor]:
    """Every tensor that an object of the engine holds, however deep in objects, lists and dicts of its own."""
    if isinstance(item, Tensor):
        yield item
    elif isinstance(item, dict | list | tuple):
        for part in item.values() if isinstance(item, dict) else item:
            yield from tensors_in(part)
    elif type(item).__module__.startswith("engine."):
        yield from tensors_in(getattr(item, "__dict__", {}))


def held(cache: HybridCache) -> int:
    """Bytes of what the cache's memories really own, found by looking at every tensor reachable from them.

    Of tensors on one storage the widest counts: the block of an arena is larger than what was asked of it.
    """
    storages: dict[int, int] = {}
    for tensor in tensors_in(cache._memories):
        place = tensor.untyped_storage().data_ptr()
        storages[place] = max(storages.get(place, 0), tensor.nbytes)
    return sum(storages.values())


@pytest.mark.parametrize("kind", CONFIGS)
def test_cache_bytes_equal_the_ledger(kind: str) -> None:
    model = engine_of(reference(kind))
    formats = Formats(weights="fp32", kv="fp32", state="fp32")
    assert model.resident_weight_bytes == ledger.resident(model.spec, formats=formats).weights
    for prompt in (3, 12, 33):
        model.prefill(tokens(BATCH, prompt), positions=POSITIONS)
        for context in (prompt, prompt + 1):
            said = model.cache.bytes
            expected = ledger.resident(
                model.spec, batch=BATCH, max_tokens=POSITIONS, filled=context, formats=formats
            ).as_dict()
            expected.pop("weights")
            assert {name: getattr(said, name) for name in expected} == expected
            assert held(model.cache) == said.kv_allocated + said.state + said.conv
            if context == prompt:
                model.decode(tokens(BATCH, 1)[:, 0])


@pytest.mark.parametrize("kind", ["qwen3.5", "kimi-linear", "nemotron-h", "deepseek-v3", "gpt-oss"])
def test_states_stay_fp32_in_a_bf16_model(kind: str) -> None:
    theirs = reference(kind)
    spec = specs.read(config_of(theirs))
    model = HybridDecoder.from_tensors(spec, theirs.state_dict(), dtype=torch.bfloat16)
    model.prefill(tokens(BATCH, 12), positions=POSITIONS)
    formats = Formats(weights="bf16", kv="bf16", state="fp32")
    expected = ledger.resident(spec, batch=BATCH, max_tokens=POSITIONS, filled=12, formats=formats)
    said = model.cache.bytes
    found = (model.resident_weight_bytes, said.kv_allocated, said.kv_filled, said.state, said.conv)
    assert found == tuple(expected.as_dict().values())


def test_state_does_not_grow_with_context_and_the_cache_does() -> None:
    model = engine_of(reference("qwen3.5"))
    sizes = []
    for positions in (10, 100):
        model.prefill(tokens(1, 5), positions=positions)
        sizes.append(model.cache.bytes)
    short, long = sizes
    assert (short.state, short.conv) == (long.state, long.conv)
    assert long.kv_allocated == 10 * short.kv_allocated
    assert short.kv_filled == long.kv_filled == short.kv_allocated // 2


def test_bytes_are_told_apart_by_kind() -> None:
    """gpt-oss: half its layers keep a window and stop growing at it, half keep everything."""
    model = engine_of(reference("gpt-oss"))
    model.prefill(tokens(1, 20), positions=POSITIONS)
    kinds = model.cache.bytes_by_kind
    position = 2 * 2 * 16 * 4  # keys and values, 2 heads of 16, fp32
    assert kinds == {"window": (2 * 9 * position, 2 * 9 * position), "kv": (2 * 40 * position, 2 * 20 * position)}
    latent = engine_of(reference("deepseek-v3"))
    latent.prefill(tokens(1, 20), positions=POSITIONS)
    assert latent.cache.bytes_by_kind == {"latent": (4 * 40 * (24 + 8) * 4, 4 * 20 * (24 + 8) * 4)}
