"""A prompt read in chunks: the logits of one read at once, in every family, with less memory in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import family_helpers
import model_helpers
import pytest
import torch

from engine import fitting, spec
from engine.chunks import chunk_lengths
from engine.model import Model
from engine.random_weights import RandomTensors

TOLERANCE = 1e-4


def difference(model: Model, rows: int, *, batch: int = 2, length: int = 83) -> float:
    """The largest, over the largest logit, between a prompt in chunks and at once, and over four tokens behind it."""
    ids = family_helpers.tokens(batch, length + 4)

    def logits(rows: int) -> list[torch.Tensor]:
        return [model.prefill(ids[:, :length], rows=rows)] + [model.decode(column) for column in ids[:, length:].T]

    at_once = logits(10**6)
    return model_helpers.worst(logits(rows), at_once)


def made(kind: str) -> Model:
    """A tiny model of a family with random weights."""
    tiny = spec.read(family_helpers.CONFIGS[kind]().to_dict())
    shapes = fitting.wanted_shapes(tiny)
    return Model.from_tensors(tiny, RandomTensors(shapes, zero_centred=tiny.recipe.zero_centred))


@pytest.mark.parametrize("kind", family_helpers.CONFIGS)
def test_every_family_reads_in_chunks_what_it_reads_at_once(kind: str) -> None:
    model = made(kind)
    # Chunks of 7 are shorter than any window and of 42 longer; neither ends where a recurrence's own chunks do.
    for rows in (14, 84):
        assert difference(model, rows) < TOLERANCE


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_the_dense_decoder_does_too(kind: str) -> None:
    model = model_helpers.engine_of(model_helpers.reference(kind, head_dim=8))
    for rows in (14, 84):
        assert difference(model, rows) < TOLERANCE


def test_masks_stay_small_however_long_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are then handled a few at a time, with the same result."""
    monkeypatch.setattr("engine.model.ops.MASK_SIZE", 200)
    monkeypatch.setattr("engine.model.window.SCORES", 200)
    assert difference(model_helpers.engine_of(model_helpers.reference("llama")), 60) < TOLERANCE
    for kind in ("gpt-oss", "deepseek-v3"):
        assert difference(made(kind), 60) < TOLERANCE


@torch.inference_mode()
def test_experts_read_are_counted_once_for_each_chunk() -> None:
    model, ids = made("mixtral"), family_helpers.tokens(1, 12)
    model.prefill(ids[:, :6], positions=12)
    first = model.experts_hit
    model._begin()
    model._read(ids[:, 6:])
    second = model.experts_hit
    model.prefill(ids, positions=12, rows=6)
    assert model.experts_hit == tuple(sum(both) for both in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("tokens", "batch", "rows", "lengths"),
    [
        (9, 1, 8, [4, 5]),
        (8, 1, 8, [8]),
        (2049, 1, 2048, [1024, 1025]),
        (100, 4, 100, [25] * 4),
        (5, 256, 8, [1] * 5),
        (1, 1, 2048, [1]),
    ],
)
def test_chunks_are_as_few_and_as_equal_as_can_be(tokens: int, batch: int, rows: int, lengths: list[int]) -> None:
    assert chunk_lengths(tokens, batch, rows) == lengths


ONE_PREFILL = """
import re, sys
from pathlib import Path
import torch
from engine import spec
from engine.dry_step import ConstantTensors
from engine.model import Model

torch.set_num_threads(1)
shape = spec.read({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 64, "hidden_size": 64,
    "intermediate_size": 8192, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "tie_word_embeddings": True})
model = Model.from_tensors(shape, ConstantTensors(shape.tensors()))
ids = torch.zeros(1, 4096, dtype=torch.long)
model.prefill(ids[:, :64])
status, rows = Path("/proc/self/status"), int(sys.argv[1])
now = lambda name: 1024 * int(re.search(name + r":\\s*(\\d+) kB", status.read_text())[1])
Path("/proc/self/clear_refs").write_text("5")
before = now("VmRSS")
model.prefill(ids, rows=rows)
print(now("VmHWM") - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux tells a process its peak of memory")
def test_memory_between_the_layers_depends_on_the_chunk_and_not_on_the_prompt() -> None:
    def peak(rows: int) -> int:
        done = subprocess.run(
            [sys.executable, "-c", ONE_PREFILL, str(rows)], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    wide = 4 * 2 * 8192  # gate and up of one token in fp32
    assert peak(4096) > 4096 * wide
    assert peak(256) < 1024 * wide
