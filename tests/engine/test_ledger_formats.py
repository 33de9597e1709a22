"""Sizes of storage formats against the libraries that define them and against figures published for them."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch

from engine import catalogue
from engine.errors import LabError
from engine.ledger import BF16, KV_LAYOUTS, WEIGHT_LAYOUTS, Formats, decode, resident

GGUF_TYPES = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs"]
# bits a weight on a 4096 x 5120 matrix, scales included, as these formats are commonly quoted
BITS = {
    "int8": 8.003,
    "int8-g128": 8.125,
    "int4": 4.125,
    "int4-g128": 4.125,
    "int4-g128-asym": 4.156,
    "int4-g64": 4.25,
    "int4-g32": 4.5,
    "int4-g64-mlx": 4.5,
    "nf4": 4.5,
    "mxfp4": 4.25,
    "nvfp4": 4.5,
    "fp8": 8.002,
    "fp8-tensor": 8.0,
    "q4_0": 4.5,
    "q4_1": 5.0,
    "q8_0": 8.5,
    "q4_k": 4.5,
    "q5_k": 5.5,
    "q6_k": 6.5625,
}


@pytest.mark.parametrize("name", GGUF_TYPES)
def test_gguf_blocks_are_those_of_the_gguf_package(name: str) -> None:
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    layout = WEIGHT_LAYOUTS[name]
    assert (layout.block, layout.block_bytes) == (block, block_bytes)
    assert layout.size(3, 5 * block) == 3 * 5 * block_bytes


@pytest.mark.parametrize("name", BITS)
def test_bits_a_weight_with_scales(name: str) -> None:
    assert WEIGHT_LAYOUTS[name].size(4096, 5120) * 8 / (4096 * 5120) == pytest.approx(BITS[name], abs=6e-4)


def test_fp8_blocks_are_counted_per_matrix_with_ragged_edges() -> None:
    weight = torch.empty(576, 7168, dtype=torch.float8_e4m3fn)
    scales = torch.empty(5, 56)  # ceil(576 / 128) x 7168 / 128
    assert WEIGHT_LAYOUTS["fp8"].size(576, 7168) == weight.nbytes + scales.nbytes
    assert WEIGHT_LAYOUTS["fp8"].size(1, 100) == 100 + 4


def test_a_row_that_does_not_fill_its_last_block_is_padded() -> None:
    assert WEIGHT_LAYOUTS["q8_0"].size(2, 33) == 2 * 2 * 34


@pytest.mark.parametrize(
    ("name", "bytes_a_head"),
    [("bf16", 256), ("fp8", 128), ("int8", 130), ("int4", 68), ("int4-g32", 72), ("int4-g64-asym", 72), ("q8_0", 136)],
)
def test_cached_vectors_of_128_with_their_scales(name: str, bytes_a_head: int) -> None:
    assert KV_LAYOUTS[name].size(1, 128) == bytes_a_head
    assert Formats(kv=name).kv_bytes(8, 128) == 8 * bytes_a_head


def test_the_published_gguf_of_the_demo_model_has_the_bytes_counted_for_its_formats(demo_gguf: Path) -> None:
    """Q4_1 matrices, a Q8_0 embedding that is the head too, FP32 norms: tensor by tensor, without the file's header."""
    stored = sum(int(tensor.n_bytes) for tensor in gguf.GGUFReader(demo_gguf).tensors)
    formats = Formats("q4_1", plain="fp32", embedding="q8_0")
    assert resident(catalogue.load("smollm2-135m"), formats=formats).weights == stored


def test_weight_formats_leave_embedding_head_norms_and_vectors_alone() -> None:
    spec = catalogue.load("meta-llama/Llama-3.1-8B")
    layered = [(w, n) for layer, n in spec.groups for w in spec.layer_weights(layer) if w.use == "matrix"]
    matrices = sum(w.parameters * n for w, n in layered)
    assert resident(spec).weights - resident(spec, formats=Formats("int4")).weights == matrices * 2 - matrices * 33 / 64


def test_int8_of_llama_2_is_half_of_bf16_and_its_head_stays() -> None:
    spec = catalogue.load("meta-llama/Llama-2-7b-hf")
    head = spec.head.parameters * 2
    plain, quantised = (
        decode(spec, 1).bytes.weights - head,
        decode(spec, 1, formats=Formats("int8")).bytes.weights - head,
    )
    assert quantised / plain == pytest.approx(0.5, abs=1e-3)


def test_flops_do_not_depend_on_how_weights_are_stored() -> None:
    spec = catalogue.load("Qwen/Qwen3-30B-A3B")
    assert (
        len({decode(spec, 100, formats=Formats(name)).flops for name in ("bf16", "fp8", "int4", "mxfp4", "q4_k")}) == 1
    )


def test_a_checkpoint_s_own_formats() -> None:
    def own(model_id: str) -> Formats:
        return Formats.own(catalogue.load(model_id))

    assert own("openai/gpt-oss-20b") == Formats("mxfp4")
    assert own("deepseek-ai/DeepSeek-V3") == Formats("fp8")
    assert own("meta-llama/Llama-2-7b-hf") == Formats("fp16", "fp16")
    assert own("tiny-3.7m") == Formats("fp32", "fp32")
    assert own("Qwen/Qwen3.8-27B") == BF16
    spec = catalogue.load("Qwen/Qwen3.8-27B")
    assert Formats.own(spec, weights="int4", kv="fp8", state="bf16") == Formats("int4", "fp8", "bf16")


def test_mxfp4_of_gpt_oss_covers_its_experts_and_nothing_else() -> None:
    assert Formats("mxfp4").quantised_roles(catalogue.load("openai/gpt-oss-20b")) == {"experts"}
    assert "attention" in Formats("mxfp4").quantised_roles(catalogue.load("Qwen/Qwen3-8B"))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"weights": "int3"}, "There is no weight format int3; known are fp32, bf16"),
        ({"kv": "int2"}, "There is no KV format int2; known are fp32"),
        ({"state": "fp8"}, "There is no state format fp8; known are fp32, bf16, fp16"),
    ],
)
def test_unknown_formats_are_refused_with_those_known(wrong: dict[str, str], says: str) -> None:
    with pytest.raises(LabError, match=says):
        Formats(**wrong)
