"""The KV cache: its bytes are its tensors', its limit is said, and nothing old is ever read."""

from __future__ import annotations

import pytest
import torch

from engine.cache import CacheBytes, KVCache
from engine.errors import LabError


def cache(dtype: torch.dtype = torch.float32, batch: int = 2, positions: int = 7) -> KVCache:
    return KVCache(
        layers=3, batch=batch, kv_heads=2, positions=positions, head_dim=4, dtype=dtype, device=torch.device("cpu")
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_those_of_the_tensors(dtype: torch.dtype) -> None:
    kept = cache(dtype)
    assert kept.bytes == CacheBytes(kv_allocated=3 * 2 * 2 * 2 * 7 * 4 * dtype.itemsize, kv_filled=0)
    kept.extend(3)
    views = kept.extend(2)
    read = sum(layer.keys.nbytes + layer.values.nbytes for layer in views)
    assert kept.bytes.kv_filled == read == kept.bytes.kv_allocated * 5 // 7
    storages = {view.untyped_storage().data_ptr(): view.untyped_storage().nbytes() for v in views for view in v}
    assert sum(storages.values()) == kept.bytes.kv_allocated


def test_views_show_the_new_positions_behind_the_old() -> None:
    kept = cache()
    for layer, views in enumerate(kept.extend(3)):
        views.new.copy_(torch.full_like(views.new, 10.0 * layer + 1))
    for layer, views in enumerate(kept.extend(1)):
        assert views.new.shape == (2, 2, 2, 1, 4)
        assert views.keys.shape == views.values.shape == (2, 2, 4, 4)
        views.new[0].fill_(10.0 * layer + 2)
        views.new[1].fill_(10.0 * layer + 3)
        assert views.keys[0, 0, :, 0].tolist() == [10.0 * layer + i for i in (1, 1, 1, 2)]
        assert views.values[1, 1, :, 3].tolist() == [10.0 * layer + i for i in (1, 1, 1, 3)]


def test_overflow_names_the_limit_and_changes_nothing() -> None:
    kept = cache(positions=4)
    kept.extend(3)
    with pytest.raises(LabError, match=r"5 .* 4 positions"):
        kept.extend(2)
    assert kept.length == 3
    kept.extend(1)
    with pytest.raises(LabError):
        kept.extend(1)


def test_reset_starts_at_the_first_position_in_the_same_memory() -> None:
    kept = cache()
    before = kept.extend(5)[0].keys.data_ptr()
    kept.reset()
    assert kept.bytes.kv_filled == 0
    after = kept.extend(1)[0]
    assert after.keys.data_ptr() == before
    assert after.keys.shape[2] == 1
