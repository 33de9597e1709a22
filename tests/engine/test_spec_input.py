"""Configs that cannot be right: each is refused in one sentence that names the key and what it should be."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import catalogue, spec
from engine.errors import LabError
from engine.ledger import decode
from engine.spec import Attention

LLAMA = catalogue.config("meta-llama/Llama-3.1-8B")
GEMMA = catalogue.config("google/gemma-3-1b-it")
QWEN35 = catalogue.config("Qwen/Qwen3.8-27B")
KIMI = catalogue.config("moonshotai/Kimi-Linear-48B-A3B-Instruct")
NEMOTRON = catalogue.config("nvidia/Nemotron-H-56B-Base-8K")
OSS = catalogue.config("openai/gpt-oss-20b")

BAD: list[tuple[str, Any, str]] = [
    ("no model type", {k: v for k, v in LLAMA.items() if k != "model_type"}, "no model_type; supported are bamba"),
    ("unknown model type", LLAMA | {"model_type": "rwkv"}, "model type rwkv is not supported; supported are bamba"),
    ("model type of another kind", LLAMA | {"model_type": 7}, "model_type is 7; it has to be a string"),
    ("no hidden size", {k: v for k, v in LLAMA.items() if k != "hidden_size"}, "no hidden_size"),
    ("layers as text", LLAMA | {"num_hidden_layers": "32"}, "num_hidden_layers is '32'; it has to be a whole number"),
    ("layers as true", LLAMA | {"num_hidden_layers": True}, "num_hidden_layers is True"),
    ("layers as a fraction", LLAMA | {"num_hidden_layers": 32.0}, "num_hidden_layers is 32.0"),
    ("zero layers", LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers is 0; it has to lie between 1 and 1000"),
    ("a billion layers", LLAMA | {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000; it has to lie"),
    ("a negative width", LLAMA | {"hidden_size": -4096}, "hidden_size is -4096"),
    ("an enormous vocabulary", LLAMA | {"vocab_size": 10**30}, "vocab_size is 1000000000000"),
    ("heads that do not divide", LLAMA | {"num_attention_heads": 30}, "num_attention_heads is 30, which is not a mult"),
    (
        "hidden size that heads do not divide",
        LLAMA | {"num_attention_heads": 24, "hidden_size": 4100},
        "hidden_size is 4100, which is not a multiple of its num_attention_heads, 24",
    ),
    ("a theta of text", LLAMA | {"rope_theta": "big"}, "rope_theta is 'big'; it has to be a positive number"),
    ("a theta of zero", LLAMA | {"rope_theta": 0}, "rope_theta is 0"),
    ("unknown scaling", LLAMA | {"rope_scaling": {"rope_type": "su"}}, "rotary scaling is su; known are default"),
    ("scaling as text", LLAMA | {"rope_scaling": "x8"}, "rope_scaling is 'x8'; it has to be an object"),
    ("a flag of text", LLAMA | {"attention_bias": "no"}, "attention_bias is 'no'; it has to be true or false"),
    ("a dtype unknown", LLAMA | {"torch_dtype": "float8_e4m3fn"}, "dtype is float8_e4m3fn; known are bfloat16"),
    (
        "a quantisation unknown",
        LLAMA | {"quantization_config": {"quant_method": "awq"}},
        "quantised with awq; known are fp8 in blocks and mxfp4",
    ),
    (
        "types for too few layers",
        GEMMA | {"layer_types": ["full_attention"]},
        "layer_types has 1 entries; it needs one",
    ),
    ("a type unknown", OSS | {"layer_types": ["chunked_attention"] * 24}, "layer_types names chunked_attention"),
    ("types that are no list", OSS | {"layer_types": "full"}, "layer_types is 'full'; it has to be a list of names"),
    (
        "more routed than there are",
        OSS | {"num_experts_per_tok": 64},
        "routes each token to 64 experts but has only 32",
    ),
    ("text part of text", QWEN35 | {"text_config": "see above"}, "text_config is 'see above'; it has to be an object"),
    (
        "layer numbers from zero",
        KIMI | {"linear_attn_config": KIMI["linear_attn_config"] | {"full_attn_layers": [0, 4]}},
        "full_attn_layers names layer 0; its layers are numbered from 1 to 27",
    ),
    ("a pattern of other letters", NEMOTRON | {"hybrid_override_pattern": "MXM"}, "row of M (Mamba2), * (attention)"),
    (
        "no pattern",
        {k: v for k, v in NEMOTRON.items() if k != "hybrid_override_pattern"},
        "one for each layer; it is missing.",
    ),
    ("blocks of another kind", NEMOTRON | {"layers_block_type": ["mamba", "rwkv"]}, "layers_block_type names rwkv"),
    ("a pattern of another length", NEMOTRON | {"hybrid_override_pattern": "M-*"}, "has 3 layers, num_hidden_layers"),
    ("a list", [LLAMA], "has to hold one JSON object, not a list"),
]


@pytest.mark.parametrize(("config", "says"), [(c, s) for _, c, s in BAD], ids=[name for name, _, _ in BAD])
def test_refused_in_one_sentence(config: Any, says: str) -> None:
    with pytest.raises(LabError) as caught:
        spec.read(config)
    said = str(caught.value)
    assert says in said
    assert said.endswith(".")
    assert "\n" not in said
    assert len(said) < 400


def test_a_missing_head_dim_is_hidden_size_over_heads() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "head_dim"}
    mixer = spec.read(config).layers[0].mixer
    assert isinstance(mixer, Attention)
    assert mixer.head_dim == 4096 // 32


def test_a_stated_head_dim_wins_over_hidden_size_over_heads() -> None:
    mixer = catalogue.load("Qwen/Qwen3-0.6B").layers[0].mixer
    assert isinstance(mixer, Attention)
    assert (mixer.head_dim, 1024 // mixer.heads) == (128, 64)


@pytest.mark.parametrize("model_id", ["meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B", "Qwen/Qwen3-Next-80B-A3B-Instruct"])
def test_a_config_silent_about_biases_has_none(model_id: str) -> None:
    config = {
        key: value for key, value in catalogue.config(model_id).items() if key not in ("attention_bias", "mlp_bias")
    }
    assert spec.read(config) == catalogue.load(model_id)


def test_missing_kv_heads_are_as_many_as_query_heads() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    mixer = spec.read(config).layers[0].mixer
    assert isinstance(mixer, Attention)
    assert mixer.kv_heads == 32


def test_rotary_scaling_is_read_in_both_spellings() -> None:
    newer = {key: value for key, value in LLAMA.items() if key not in ("rope_scaling", "rope_theta")}
    newer["rope_parameters"] = LLAMA["rope_scaling"] | {"rope_theta": LLAMA["rope_theta"]}
    assert spec.read(newer) == spec.read(LLAMA)
    mixer = spec.read(LLAMA).layers[0].mixer
    assert isinstance(mixer, Attention)
    assert mixer.rotary is not None
    assert (mixer.rotary.theta, mixer.rotary.kind, mixer.rotary.factor) == (500_000, "llama3", 8)
    assert mixer.rotary.original_max_position == 8192


def test_some_families_turn_only_a_part_of_each_head() -> None:
    def dims(model_id: str) -> set[int]:
        mixers = [layer.mixer for layer in catalogue.load(model_id).layers]
        return {mixer.rotary.dims for mixer in mixers if isinstance(mixer, Attention) and mixer.rotary}

    assert dims("Qwen/Qwen3.8-27B") == dims("Qwen/Qwen3-Next-80B-A3B-Instruct") == {64}
    assert dims("meta-llama/Llama-3.1-8B") == {128}
    assert dims("nvidia/Nemotron-H-56B-Base-8K") == set()  # it has no positions at all


def test_a_sliding_window_that_is_switched_off_is_ignored() -> None:
    config = catalogue.config("Qwen/Qwen2.5-7B") | {"max_window_layers": 8}
    windows = [layer.mixer.window for layer in spec.read(config).layers if isinstance(layer.mixer, Attention)]
    assert windows == [None] * 28
    config["use_sliding_window"] = True
    windows = [layer.mixer.window for layer in spec.read(config).layers if isinstance(layer.mixer, Attention)]
    assert windows == [None] * 8 + [131_072] * 20


def test_kimi_s_layer_numbers_start_at_one() -> None:
    layers = catalogue.load("moonshotai/Kimi-Linear-48B-A3B-Instruct").layers
    full = [index for index, layer in enumerate(layers) if hasattr(layer.mixer, "rank")]
    assert full == [3, 7, 11, 15, 19, 23, 26]


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert spec.from_folder(tmp_path) == spec.read(LLAMA)
    assert spec.from_folder(tmp_path / "config.json") == spec.read(LLAMA)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "is not a model folder"),
        (b"{", "is not valid JSON"),
        (b"\xff\xfe", "is not a model folder"),
        (b"[]", "not a list"),
    ],
)
def test_a_folder_that_is_none(tmp_path: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(LabError, match=says):
        spec.from_folder(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(LabError, match="is not a model folder"):
        spec.from_folder(tmp_path)


def test_a_folder_name_that_cannot_be_one() -> None:
    with pytest.raises(LabError, match="is not a model folder"):
        spec.from_folder("nowhere\0")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just([]) | st.just({})


@settings(max_examples=300, deadline=None)
@given(
    model_id=st.sampled_from(["meta-llama/Llama-3.1-8B", "openai/gpt-oss-20b", "moonshotai/Kimi-K2-Instruct"]),
    key=st.integers(0, 60),
    value=SCALARS,
)
def test_any_one_value_changed_is_read_or_refused_and_never_crashes(model_id: str, key: int, value: Any) -> None:
    config = catalogue.config(model_id)
    name = list(config)[key % len(config)]
    try:
        read = spec.read(config | {name: value})
    except LabError as error:
        assert str(error).endswith(".")  # noqa: PT017
    else:
        assert decode(read, 100).flops > 0
