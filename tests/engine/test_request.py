"""The gate for run requests: each bad field gets one sentence, each good one passes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import request as gate
from engine.errors import LabError
from engine.record import RunRequest


def ask(**fields):
    return RunRequest(**{"model": "tiny-3.7m", "prompt": "Hello", **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_new_tokens": 1},
        {"batch": 256},
        {"dtype": "bfloat16", "weights": "bf16", "kv": "bf16"},
        {"dtype": "float32", "weights": "int8", "kv": "fp32"},
        {"weights": "int4-g32"},
        {"weights": "bf16", "kv": "fp32"},
        {"kv": "int8"},
        {"weights": "int8", "kv": "bf16"},
        {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "seed": 7},
        {"prompt": "小明把苹果给了 👩‍👩‍👧"},
    ],
)
def test_good_requests_pass(fields):
    gate.check(ask(**fields))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"prompt": ""}, "empty"),
        ({"prompt": " \n\t"}, "empty"),
        ({"prompt": "x" * 1_000_000}, "1,000,000 characters"),
        ({"prompt": "ab\ud83d"}, "Character 3"),
        ({"model": "m" * 5_000}, "5000 characters"),
        ({"max_new_tokens": 0}, "length to write is 0"),
        ({"max_new_tokens": -3}, "length to write is -3"),
        ({"max_new_tokens": 10**12}, "length to write"),
        ({"batch": 0}, "batch is 0"),
        ({"batch": 10**9}, "batch"),
        ({"dtype": "float16"}, "float16"),
        ({"weights": "int3"}, "int3"),
        ({"dtype": "bfloat16", "weights": "int8"}, "weights in int8"),
        ({"dtype": "bfloat16", "kv": "fp32"}, "bf16"),
        ({"dtype": "bfloat16", "kv": "int8"}, "cache in int8"),
        ({"kv": "int4"}, "cache in int4"),
        ({"kv": "x" * 9_000}, "cache in xxx"),
        ({"latent": "unfolded"}, "unfolded"),
        ({"clock": "sundial"}, "sundial"),
        ({"launches": "rockets"}, "rockets"),
        ({"clock": "free-running", "temperature": 0.5}, "temperature 0"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"top_p": 0.0}, "top-p"),
        ({"top_p": 1.5}, "top-p"),
        ({"min_p": -1.0}, "min-p"),
        ({"top_k": -1}, "top-k"),
        ({"seed": -1}, "seed"),
    ],
)
def test_each_bad_field_gets_one_sentence(fields, says):
    with pytest.raises(LabError) as caught:
        gate.check(ask(**fields))
    sentence = str(caught.value)
    assert says in sentence
    assert "\n" not in sentence
    assert len(sentence) < 300, "a sentence must not repeat the whole input"


@pytest.mark.parametrize("fields", [{"kv": "fp8"}, {"weights": "fp8"}, {"kv": "fp8", "dtype": "bfloat16"}])
def test_a_refused_format_names_nothing_that_was_not_asked(fields):
    with pytest.raises(LabError) as caught:
        gate.check(ask(**fields))
    sentence = str(caught.value)
    assert ("weights" in sentence, "KV cache" in sentence) == ("weights" in fields, "kv" in fields)
    assert ("computes in" in sentence) == ("dtype" in fields)
    assert " - " not in sentence


@pytest.mark.parametrize(
    ("tokens", "limit", "fits"), [(1, 2, True), (8191, 8192, True), (8192, 8192, False), (0, 9, False)]
)
def test_the_prompt_leaves_one_position_to_write_to(tokens, limit, fits):
    if fits:
        gate.check_fits(tokens, limit)
    else:
        with pytest.raises(LabError):
            gate.check_fits(tokens, limit)


def test_memory_is_refused_only_beyond_what_is_free():
    gate.check_memory(10**9, 10**9)
    with pytest.raises(LabError, match=r"1\.00 GB .* 0\.50 GB"):
        gate.check_memory(10**9, 5 * 10**8)


@given(st.text(max_size=200))
def test_any_text_is_either_taken_or_refused_with_a_sentence(text):
    try:
        gate.check_text(text)
        taken = True
    except LabError:
        taken = False
    assert taken == bool(text.strip())


@pytest.mark.parametrize(
    ("fields", "stored", "computes_in"),
    [
        ({}, "fp32", "float32"),
        ({}, "bf16", "bfloat16"),
        ({}, "fp16", "float32"),
        ({"weights": "bf16"}, "fp32", "bfloat16"),
        ({"weights": "bf16", "kv": "fp32"}, "bf16", "float32"),
        ({"kv": "int8"}, "bf16", "float32"),
        ({"kv": "bf16"}, "bf16", "bfloat16"),
        ({"kv": "bf16"}, "fp32", "float32"),
        ({"weights": "int8", "kv": "bf16"}, "fp32", "float32"),
        ({"weights": "int8"}, "bf16", "float32"),
        ({"dtype": "float32"}, "bf16", "float32"),
    ],
)
def test_the_type_is_as_asked_or_else_the_checkpoints_own(fields, stored, computes_in):
    assert gate.choose_dtype(ask(**fields), stored) == computes_in
