"""From one GGUF file of the Llama family to a folder in Hugging Face layout, exactly.

Quantised tensors become the fp32 numbers they stand for: a 4-bit step times an fp16 scale plus an fp16
minimum needs more than bf16's 8 bits of mantissa, so fp32 is the smallest common format that loses
nothing. One tensor is in memory at a time. Knows GGUF's names; knows nothing of torch or of the index.

Source of the names and of the rotary permutation: llama.cpp's convert_hf_to_gguf.py (LlamaModel.permute).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from engine.errors import LabError

Array = npt.NDArray[np.float32]

_WHOLE_MODEL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_SPECIAL_TOKEN = 3  # gguf's TokenType.CONTROL


def convert(path: Path, folder: Path, progress: Callable[[int, int], None]) -> None:
    """Write config.json, model.safetensors and the tokenizer's files into `folder`.

    Args:
        path: a GGUF whose architecture is `llama` and whose pre-tokenizer is `smollm`.
        folder: an existing, empty folder.
        progress: told after each tensor how many of how many are written.

    Raises:
        LabError: the file is of a kind this importer does not know.
    """
    reader = gguf.GGUFReader(path)
    facts = dict(reader.fields)

    def fact(name: str) -> Any:
        if name not in facts:
            raise LabError("{file} does not say its {name}; it cannot be imported.", file=path.name, name=name)
        return facts[name].contents()

    if fact("general.architecture") != "llama" or fact("tokenizer.ggml.pre") != "smollm":
        raise LabError("{file} is not a SmolLM2 model; it cannot be imported.", file=path.name)
    config = _config(fact, tied=all(tensor.name != "output.weight" for tensor in reader.tensors))
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {k: config[k] for k in _TOKEN_IDS})
    _write_tokenizer(fact, folder)
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    _write_weights(folder / "model.safetensors", reader.tensors, heads, progress)


_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def _config(fact: Callable[[str], Any], *, tied: bool) -> dict[str, Any]:
    """The model's dimensions under Hugging Face's names."""
    heads, width = int(fact("llama.attention.head_count")), int(fact("llama.embedding_length"))
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": int(fact("llama.vocab_size")),
        "hidden_size": width,
        "intermediate_size": int(fact("llama.feed_forward_length")),
        "num_hidden_layers": int(fact("llama.block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(fact("llama.attention.head_count_kv")),
        "head_dim": width // heads,
        "hidden_act": "silu",
        "max_position_embeddings": int(fact("llama.context_length")),
        "rms_norm_eps": _shortest(fact("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(fact("llama.rope.freq_base")),
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": int(fact("tokenizer.ggml.bos_token_id")),
        "eos_token_id": int(fact("tokenizer.ggml.eos_token_id")),
        "pad_token_id": int(fact("tokenizer.ggml.padding_token_id")),
        "torch_dtype": "float32",
    }


def _shortest(value: float) -> float:
    """The shortest decimal that is the same fp32 number: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


# --- tokenizer ------------------------------------------------------------------------------------


def _write_tokenizer(fact: Callable[[str], Any], folder: Path) -> None:
    """tokenizer.json as `smollm` means it: digits one by one, then GPT-2's byte-level split and BPE."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = fact("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in fact("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = fact("tokenizer.ggml.token_type")
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _SPECIAL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    # Not tokenizer.save(), whose errors do not say what the file system refused.
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    settings = {
        "add_bos_token": bool(fact("tokenizer.ggml.add_bos_token")),
        "add_prefix_space": False,
        "bos_token": tokens[fact("tokenizer.ggml.bos_token_id")],
        "eos_token": tokens[fact("tokenizer.ggml.eos_token_id")],
        "pad_token": tokens[fact("tokenizer.ggml.padding_token_id")],
        "unk_token": tokens[fact("tokenizer.ggml.unknown_token_id")],
        "chat_template": fact("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": int(fact("llama.context_length")),
        "tokenizer_class": "PreTrainedTokenizerFast",  # transformers' GPT2Tokenizer would drop the split of digits
    }
    _write_json(folder / "tokenizer_config.json", settings)


# --- weights --------------------------------------------------------------------------------------


def _write_weights(path: Path, tensors: list[Any], heads: dict[str, int], progress: Callable[[int, int], None]) -> None:
    """A safetensors file, tensor after tensor: the library's own writer wants all of them in memory.

    Format: 8 bytes little-endian header length, JSON header, the tensors' bytes in the header's order.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for tensor in tensors:
        shape = [int(size) for size in reversed(tensor.shape)]
        start, end = end, end + 4 * int(np.prod(shape))
        header[_hf_name(tensor.name)] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for done, array in enumerate(_arrays(tensors, heads), start=1):
            file.write(np.ascontiguousarray(array, dtype="<f4").data)
            progress(done, len(tensors))


def _arrays(tensors: list[Any], heads: dict[str, int]) -> Iterator[Array]:
    for tensor in tensors:
        array: Array = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        kind = tensor.name.split(".")[-2]
        yield _rotate_halves(array, heads[kind]) if kind in heads else array


def _rotate_halves(array: Array, heads: int) -> Array:
    """Rows of a q or k projection, from rotary pairs side by side (GGUF) to halves (Hugging Face)."""
    rows, columns = array.shape
    return array.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    parts = name.split(".")
    known = _PER_LAYER.get(parts[2]) if len(parts) == 4 and parts[0] == "blk" else _WHOLE_MODEL.get(parts[0])
    if known is None:
        raise LabError("The model file has a tensor {name} that no Llama has; it cannot be imported.", name=name)
    prefix = f"model.layers.{parts[1]}." if parts[0] == "blk" else ""
    return f"{prefix}{known}.{parts[-1]}"


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
