"""A KV cache in fewer bits than are computed with: what is kept, what it takes, and what attention over it gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from model_helpers import reference
from torch import Tensor

from engine import spec as specs
from engine.cache import RoundedKVCache
from engine.ledger import Formats, resident
from engine.ledger import decode as ledger_decode
from engine.model import ops
from engine.model.decoder import Decoder

# Groups of one, two and four query heads a key head (the kernels take up to three at a time); heads of 32 and of 64.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"hidden_size": 96, "intermediate_size": 160, "head_dim": 32}),
    "qwen2": ("qwen2", {"hidden_size": 192, "num_key_value_heads": 6}),
    "qwen3": ("qwen3", {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 64, "num_key_value_heads": 1}),
    "pair": ("llama", {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 64, "num_key_value_heads": 2}),
}
# Each pair of formats of weights and cache is compiled by itself, so there are no more of them than say something.
PAIRS = [("fp32", "fp32"), ("fp32", "bf16"), ("fp32", "int8"), ("int8", "int8")]
POSITIONS = 330
TOLERANCE = 1e-4


def decoder(family: str, weights: str, kv: str | None, patch: pytest.MonkeyPatch, *, compiled: bool = True) -> Decoder:
    kind, changes = FAMILIES[family]
    model = reference(kind, max_position_embeddings=POSITIONS, **changes)
    with patch.context() as here:
        if not compiled:
            here.setenv("ROOFLINE_LAB_KERNELS", "torch")
        spec = specs.read(model.config.to_dict())
        made = Decoder.from_tensors(spec, model.state_dict(), weights=weights, kv=kv)
    assert (made._compiled is not None) == compiled
    return made


def spelled_out(model: Decoder) -> Tensor:
    """What a model's cache stands for, [layers, 2, B, Hkv, positions, d] in fp32; a second time, by its definition."""
    cache = model.cache
    numbers = cache.storage.to(torch.float32)
    return numbers if cache.scales is None else numbers * cache.scales.to(torch.float32).unsqueeze(-1)


def over_the_same_cache(plain: Decoder, model: Decoder, ids: Tensor, patch: pytest.MonkeyPatch) -> Tensor:
    """Logits by plain torch in fp32 of the last tokens that `model` took, over just what its cache stands for.

    Nothing is written: the new positions' keys and values are read as `model` kept them.
    """
    plain._allocate(batch=len(ids), positions=model.cache.positions)
    plain.cache.storage.copy_(spelled_out(model))
    plain.cache.length = model.cache.length - ids.shape[1]
    with patch.context() as here, torch.inference_mode():
        here.setattr(ops, "write_cache_", lambda new, heads: None)
        return plain._step(ids)


def apart(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(("weights", "kv"), PAIRS)
@pytest.mark.parametrize("family", FAMILIES)
def test_steps_equal_torchs_over_what_the_cache_stands_for(
    family: str, weights: str, kv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts for the kernels and for torch, and decode steps where a run of 128 positions is full, or just begun."""
    model = decoder(family, weights, kv, monkeypatch)
    plain = decoder(family, weights, None, monkeypatch, compiled=False)
    torch.manual_seed(5)
    for batch, tokens in ((1, 1), (1, 7), (3, 2), (1, 125), (3, 127), (1, 254)):
        prompt = torch.randint(257, (batch, tokens))
        found = model.prefill(prompt)
        assert apart(found, over_the_same_cache(plain, model, prompt, monkeypatch)) < TOLERANCE
        for _ in range(4):
            token = torch.randint(257, (batch,))
            found = model.decode(token)
            assert apart(found, over_the_same_cache(plain, model, token[:, None], monkeypatch)) < TOLERANCE


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("kv", ["fp32", "int8"])
def test_any_number_of_threads_shares_a_long_context(kv: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder("qwen3", "fp32", kv, monkeypatch)
    plain = decoder("qwen3", "fp32", None, monkeypatch, compiled=False)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        model.prefill(torch.arange(257)[None])
        for token in (torch.tensor([7]), torch.tensor([11])):
            found = model.decode(token)
            assert apart(found, over_the_same_cache(plain, model, token[:, None], monkeypatch)) < TOLERANCE
    finally:
        torch.set_num_threads(before)


def test_a_prompt_in_chunks_reads_what_the_chunks_before_it_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts in chunks of torch's, the last one of a size that the kernels take, give what one read at once gives."""
    model = decoder("llama", "fp32", "int8", monkeypatch)
    prompt = torch.randint(257, (2, 83), generator=torch.Generator().manual_seed(1))
    at_once, whole = model.prefill(prompt), spelled_out(model)
    for rows in (2 * 42, 2 * 20, 2 * 7):
        assert apart(model.prefill(prompt, rows=rows), at_once) < 1e-3  # a number near the middle may round otherwise
        assert apart(spelled_out(model), whole) < 1e-3


def test_heads_are_spelled_out_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder("qwen2", "fp32", "int8", monkeypatch)
    prompt = torch.arange(150)[None]
    at_once = model.prefill(prompt)
    seen: list[int] = []
    original = ops.spelled_out

    def watched(kept: Any, heads: slice, dtype: torch.dtype) -> Tensor:
        made = original(kept, heads, dtype)
        seen.append(made.numel())
        return made

    monkeypatch.setattr(ops, "spelled_out", watched)
    monkeypatch.setattr(ops, "SPELLED_OUT", 2 * 150 * 32)
    assert apart(model.prefill(prompt), at_once) < 1e-6
    assert max(seen) == 2 * 150 * 32


@pytest.mark.parametrize("tokens", [5, 60])
@pytest.mark.parametrize(("kv", "step"), [("int8", 1 / 127), ("bf16", 2**-7)])
def test_what_is_kept_is_off_by_half_a_step_at_most(
    kv: str, step: float, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first layer, whose keys and values do not depend on any cache: by the kernels, and by torch.

    int8: of the largest number of a head, whose scale may be 2^-7 too large. bf16: of the number itself, which has
    eight bits.
    """
    model, exact = (decoder("qwen3", "fp32", each, monkeypatch) for each in (kv, None))
    prompt = torch.randint(257, (1, tokens), generator=torch.Generator().manual_seed(3))
    for each in (model, exact):
        each.prefill(prompt)
    wanted = spelled_out(exact)[0][..., :tokens, :]
    reach = wanted.abs().amax(-1, keepdim=True) if kv == "int8" else wanted.abs()
    off = (spelled_out(model)[0][..., :tokens, :] - wanted).abs()
    assert bool((off <= reach * step * 0.51 + 1e-6).all())
    assert float(off.max()) > 0


def test_kernels_and_torch_keep_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = (decoder("llama", "fp32", "int8", monkeypatch, compiled=compiled) for compiled in (True, False))
    for model in (ours, theirs):
        model.prefill(torch.arange(9)[None])
        assert isinstance(model.cache, RoundedKVCache)
    one, other = ours.cache.storage[0].int(), theirs.cache.storage[0].int()
    assert int((one - other).abs().max()) <= 1
    assert float((one != other).float().mean()) < 1e-3
    assert int(one.abs().max()) == 127
    assert apart(ours.cache.scales[0].float(), theirs.cache.scales[0].float()) < 1e-3


def test_a_head_of_zeros_is_kept_as_zeros() -> None:
    cache = RoundedKVCache(layers=1, batch=1, kv_heads=1, positions=2, head_dim=32, device=torch.device("cpu"))
    [views] = cache.extend(2)
    ops.write_cache_(views.new, torch.zeros(1, 2, 2, 32))
    assert not ops.spelled_out(views.keys, slice(0, 1), torch.float32).any()


@pytest.mark.parametrize(("weights", "kv"), PAIRS)
def test_bytes_are_the_tensors_and_the_ledgers(weights: str, kv: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder("pair", weights, kv, monkeypatch)
    model.prefill(torch.ones(3, 9, dtype=torch.long), positions=20)
    formats = Formats.engine("fp32", weights, kv)
    held = resident(model.spec, batch=3, max_tokens=20, filled=9, formats=formats)
    cache = model.cache
    tensors = [cache.storage, *([] if cache.scales is None else [cache.scales])]
    assert cache.bytes.kv_allocated == held.kv_allocated == sum(tensor.nbytes for tensor in tensors)
    assert cache.bytes.kv_filled == held.kv_filled
    # What a step reads are the positions before its own, of every layer, and it writes its own.
    step = ledger_decode(model.spec, 10, batch=3, formats=formats)
    views = [view for layer in cache.extend(1) for view in (*_parts(layer.keys), *_parts(layer.values))]
    assert step.bytes.kv_read + step.bytes.kv_write == sum(view.nbytes for view in views)
    assert step.bytes.kv_write == sum(part.nbytes for layer in cache.extend(1) for part in _parts(layer.new))


def _parts(kept: Any) -> list[Tensor]:
    return [kept] if isinstance(kept, Tensor) else list(kept)


def test_the_same_weights_serve_whatever_the_cache_is_held_in(monkeypatch: pytest.MonkeyPatch) -> None:
    model = decoder("llama", "fp32", None, monkeypatch)
    prompt, held = torch.arange(6)[None], model.resident_weight_bytes
    plain = model.prefill(prompt).clone()
    model.hold_kv("int8")
    assert model.cache.length == 0
    rounded = model.prefill(prompt).clone()
    assert isinstance(model.cache, RoundedKVCache)
    assert 0 < apart(rounded, plain) < 0.1
    model.hold_kv(None)
    assert torch.equal(model.prefill(prompt), plain)
    assert model.resident_weight_bytes == held
