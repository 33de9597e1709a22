"""The ledger against transformers' own models: parameters, FLOPs, cache tensors, one tiny model of every family."""

from __future__ import annotations

from dataclasses import replace

import ledger_reference as reference
import pytest

from engine import spec
from engine.ledger import TRANSFORMERS, Formats, StepLedger, decode, prefill, resident
from engine.spec import GatedDeltaNet, KimiDelta, Mamba2

FP32 = Formats.dense("fp32")
# FlopCounterMode cannot see the recurrences' elementwise products; they are checked by hand in test_ledger_recurrence.
VISIBLE = replace(TRANSFORMERS, recurrence="none")
MAMBA_FAMILIES = {"nemotron_h", "nemotron_h-experts", "granite", "bamba"}
CHUNKED_FAMILIES = {"qwen3_next", "qwen3_5", "qwen3_5_moe", "kimi_linear"}

every_family = pytest.mark.parametrize("family", reference.FAMILIES)


def of(step: StepLedger, kind: str) -> int:
    return sum(op.flops for op in step.ops if op.kind == kind)


def recurrent_layers(family: str) -> list[GatedDeltaNet | KimiDelta | Mamba2]:
    mixers = [layer.mixer for layer in spec.read(reference.config_json(family)).layers]
    return [mixer for mixer in mixers if isinstance(mixer, GatedDeltaNet | KimiDelta | Mamba2)]


@every_family
def test_parameters_are_those_of_the_model(family: str) -> None:
    counted = spec.read(reference.config_json(family)).parameters
    assert counted.trunk == sum(tensor.numel() for tensor in reference.stored(family).values())


@every_family
def test_resident_weights_are_the_bytes_of_the_real_tensors(family: str) -> None:
    held = resident(spec.read(reference.config_json(family)), formats=FP32)
    assert held.weights == sum(tensor.nbytes for tensor in reference.stored(family).values())


@pytest.mark.parametrize("family", ["llama", "llama-3.1", "mistral", "qwen2", "qwen3"])
def test_tensor_names_and_shapes_are_those_of_the_checkpoint(family: str) -> None:
    real = {name: tuple(tensor.shape) for name, tensor in reference.stored(family).items()}
    assert spec.read(reference.config_json(family)).tensors() == real


@every_family
@pytest.mark.parametrize(("batch", "tokens"), [(1, 24), (2, 9)])
def test_decode_flops_are_what_torch_counts(family: str, batch: int, tokens: int) -> None:
    described = spec.read(reference.config_json(family))
    counted, _ = reference.run(family, tokens, batch=batch)
    step = decode(described, tokens + 1, batch=batch, formats=FP32, convention=VISIBLE)
    # Mamba2's fallback reads its state with a real matrix product: the one part of a recurrence that is seen.
    seen = sum(2 * m.state_size for m in recurrent_layers(family) if isinstance(m, Mamba2)) * batch
    assert reference.matrix_flops(counted[1]) == step.flops - of(step, "conv") + seen
    # At decode transformers computes two outputs of its convolution and drops one.
    assert reference.conv_flops(counted[1]) in (of(step, "conv"), 2 * of(step, "conv"), 0)


# Without its kernels transformers pads a prompt of a Mamba2 model to a chunk of 256: torch would count the padding.
@pytest.mark.parametrize("family", sorted(set(reference.FAMILIES) - MAMBA_FAMILIES))
@pytest.mark.parametrize(("batch", "tokens"), [(1, 24), (2, 9)])
def test_prefill_flops_are_what_torch_counts(family: str, batch: int, tokens: int) -> None:
    described = spec.read(reference.config_json(family))
    counted, _ = reference.run(family, tokens, batch=batch)
    step = prefill(described, tokens, batch=batch, formats=FP32, convention=VISIBLE)
    chunked = sum(gemm_flops_of_a_chunk(mixer) for mixer in recurrent_layers(family)) * batch
    assert reference.matrix_flops(counted[0]) == step.flops - of(step, "conv") + chunked


@pytest.mark.parametrize("family", sorted(CHUNKED_FAMILIES))
def test_chunked_recurrence_is_what_torch_counts_on_two_full_chunks(family: str) -> None:
    described = spec.read(reference.config_json(family))
    counted, _ = reference.run(family, 128)
    step = prefill(described, 128, formats=FP32, convention=replace(TRANSFORMERS, recurrence="chunked"))
    # The triangular solves run row by row, elementwise, and are not seen.
    solves = sum(solve_flops_of_a_chunk(mixer) for mixer in recurrent_layers(family)) * 2
    assert reference.matrix_flops(counted[0]) == step.flops - of(step, "conv") - solves


def gemm_flops_of_a_chunk(mixer: object) -> int:
    """A whole chunk of 64 rows, which shorter prompts are padded to."""
    if not isinstance(mixer, GatedDeltaNet | KimiDelta):
        return 0
    return 64 * mixer.chunked_flops(64) - solve_flops_of_a_chunk(mixer)


def solve_flops_of_a_chunk(mixer: object) -> int:
    """C (dk + dv) a token and head."""
    if isinstance(mixer, GatedDeltaNet):
        return 64 * mixer.value_heads * 64 * (mixer.key_dim + mixer.value_dim)
    return 64 * mixer.heads * 64 * 2 * mixer.dim if isinstance(mixer, KimiDelta) else 0


@every_family
@pytest.mark.parametrize(("batch", "tokens"), [(1, 24), (2, 9)])
def test_cache_bytes_are_those_of_the_real_cache(family: str, batch: int, tokens: int) -> None:
    described = spec.read(reference.config_json(family))
    _, cache = reference.run(family, tokens, batch=batch)
    held = resident(described, batch=batch, max_tokens=tokens + 1, formats=FP32, convention=TRANSFORMERS)
    real = reference.cache_bytes(cache)
    assert real == {"kv": held.kv_allocated, "state": held.state, "conv": held.conv}
    assert real["kv"] or real["state"]


def test_a_window_cache_of_transformers_keeps_one_position_less_than_the_window() -> None:
    described = spec.read(reference.config_json("mistral-window"))
    _, cache = reference.run("mistral-window", 40)
    ours = resident(described, max_tokens=41, formats=FP32).kv_allocated
    assert ours == reference.cache_bytes(cache)["kv"] // 15 * 16


def test_every_prompt_position_costs_the_head_unless_only_the_last_is_asked_for() -> None:
    described = spec.read(reference.config_json("llama"))
    everywhere = prefill(described, 24, formats=FP32, convention=TRANSFORMERS)
    last = prefill(described, 24, formats=FP32, convention=replace(TRANSFORMERS, head="last"))
    assert everywhere.flops - last.flops == 23 * 2 * 97 * 48
