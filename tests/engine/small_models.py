"""Small checkpoints as transformers saves them, for tests that need a folder of real files."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM


def save_llama(
    folder: Path, *, tied: bool = False, shard_size: str = "1GB", dtype: torch.dtype = torch.float32
) -> Path:
    """A random Llama of two layers, 24 KB in fp32 (tied: the head is the embedding)."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        eos_token_id=[2, 3],
    )
    torch.manual_seed(0)
    return _save(LlamaForCausalLM(config).to(dtype), folder, shard_size)


def save_qwen2(folder: Path) -> Path:
    """A random Qwen2 of two layers: q, k and v have biases."""
    config = Qwen2Config(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_sliding_window=False,
    )
    torch.manual_seed(0)
    return _save(Qwen2ForCausalLM(config), folder, "1GB")


def edit_config(folder: Path, **changes: object) -> None:
    """Change values of a folder's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def _save(model: PreTrainedModel, folder: Path, shard_size: str) -> Path:
    model.save_pretrained(folder, max_shard_size=shard_size)
    return folder
