"""FP8 and MXFP4 weights become the numbers that transformers and torch make of them, whole folders included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from family_helpers import CONFIGS
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from engine import checkpoint, weights
from engine.dequantise import FP4_VALUES, from_fp8, from_mxfp4
from engine.errors import LabError
from engine.model import load

FILE = "model.safetensors"
BLOCK = (16, 32)


def random_fp8(*shape: int) -> Tensor:
    return (torch.randn(*shape) * 50).to(torch.float8_e4m3fn)


# --- the arithmetic ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "blocks"), [((64, 96), (4, 3)), ((3, 32, 64), (3, 2, 2))])
def test_fp8_blocks_as_transformers_reads_them(shape: tuple[int, ...], blocks: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    weight, scale = random_fp8(*shape), torch.rand(*blocks) + 0.1
    reference = Fp8Dequantize(None)._dequantize_one(weight, scale, torch.float32)
    assert torch.equal(from_fp8(weight, scale, BLOCK), reference)


def test_fp8_blocks_that_end_early() -> None:
    """Kimi's and DeepSeek's matrices do not all divide by 128: worked out here number by number."""
    torch.manual_seed(0)
    weight, scale = random_fp8(37, 70), torch.rand(3, 3) + 0.1
    found = from_fp8(weight, scale, BLOCK)
    for row, column in ((0, 0), (15, 31), (16, 32), (36, 69), (36, 0), (0, 69)):
        expected = weight[row, column].float() * scale[row // 16, column // 32]
        assert found[row, column] == expected


def test_fp8_with_one_scale() -> None:
    weight = random_fp8(5, 7)
    assert torch.equal(from_fp8(weight, torch.tensor(0.25), BLOCK), weight.float() * 0.25)
    assert torch.equal(from_fp8(weight, torch.tensor([0.25]), BLOCK), weight.float() * 0.25)


def test_mxfp4_as_transformers_reads_it() -> None:
    torch.manual_seed(0)
    blocks = torch.randint(0, 256, (3, 10, 4, 16), dtype=torch.uint8)
    scales = torch.randint(100, 150, (3, 10, 4), dtype=torch.uint8)
    reference = convert_moe_packed_tensors(blocks, scales)
    assert torch.equal(from_mxfp4(blocks, scales).mT, reference)


def test_mxfp4_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    blocks = torch.randint(0, 256, (2, 10, 4, 16), dtype=torch.uint8)
    scales = torch.randint(100, 150, (2, 10, 4), dtype=torch.uint8)
    whole = from_mxfp4(blocks, scales)
    monkeypatch.setattr("engine.dequantise._PIECE", 48)
    assert torch.equal(from_mxfp4(blocks, scales), whole)


# --- folders ----------------------------------------------------------------------------------------


def save(kind: str, folder: Path) -> dict[str, Tensor]:
    """A tiny model of a family as transformers saves it; its tensors by the files' names."""
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(CONFIGS[kind](), dtype=torch.float32).save_pretrained(folder)
    return load_file(folder / FILE)


def quantise(folder: Path, tensors: dict[str, Tensor], settings: dict[str, Any]) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / FILE)
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": settings}
    (folder / "config.json").write_text(json.dumps(config))


def to_fp8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """FP8 in blocks, and the scales, after DeepSeek-V3's recipe: the largest number of a block becomes 448."""
    rows, columns = weight.shape
    scale = torch.empty(-(-rows // BLOCK[0]), -(-columns // BLOCK[1]))
    packed = torch.empty_like(weight, dtype=torch.float8_e4m3fn)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            here = (slice(i * BLOCK[0], (i + 1) * BLOCK[0]), slice(j * BLOCK[1], (j + 1) * BLOCK[1]))
            scale[i, j] = weight[here].abs().max() / 448
            packed[here] = (weight[here] / scale[i, j]).to(torch.float8_e4m3fn)
    return packed, scale


@pytest.fixture
def fp8_folder(tmp_path: Path) -> Path:
    """A Qwen3-MoE with its linears and experts in FP8, as Qwen publishes them."""
    tensors = save("qwen3-moe", tmp_path)
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        tensors[name], tensors[name + "_scale_inv"] = to_fp8(tensors[name])
    quantise(tmp_path, tensors, {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(BLOCK)})
    return tmp_path


@pytest.fixture
def mxfp4_folder(tmp_path: Path) -> tuple[Path, dict[str, Tensor]]:
    """A gpt-oss with its experts in MXFP4, as OpenAI publishes it; and its tensors uncompressed."""
    config = CONFIGS["gpt-oss"]()
    config.hidden_size, config.intermediate_size = 64, 96
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / FILE)
    plain = dict(tensors)
    for name in [name for name in tensors if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, inputs, outputs = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (experts, outputs, inputs // 32, 16), dtype=torch.uint8)
        scales = torch.randint(118, 124, (experts, outputs, inputs // 32), dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        plain[name] = convert_moe_packed_tensors(blocks, scales).float()
    quantise(tmp_path, tensors, {"quant_method": "mxfp4"})
    return tmp_path, plain


def logits(folder: Path) -> Tensor:
    return load(str(folder)).prefill(torch.tensor([[5, 80, 3, 200, 41]]))


def reference_logits(folder: Path, tensors: dict[str, Tensor]) -> Tensor:
    """transformers' logits for the tensors given uncompressed."""
    plain = folder / "plain"
    plain.mkdir()
    config = json.loads((folder / "config.json").read_text())
    config.pop("quantization_config")
    (plain / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, plain / FILE, {"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.float32)
    with torch.inference_mode():
        return model.eval()(torch.tensor([[5, 80, 3, 200, 41]])).logits[:, -1]


def test_an_fp8_folder_runs_as_its_numbers_do(fp8_folder: Path) -> None:
    stored = load_file(fp8_folder / FILE)
    plain = {
        name: Fp8Dequantize(None)._dequantize_one(t, stored[f"{name}_scale_inv"], torch.float32)
        if f"{name}_scale_inv" in stored and t.shape[0] % 16 == 0 and t.shape[1] % 32 == 0
        else from_fp8(t, stored[f"{name}_scale_inv"], BLOCK)
        if f"{name}_scale_inv" in stored
        else t
        for name, t in stored.items()
        if not name.endswith("_scale_inv")
    }
    assert (logits(fp8_folder) - reference_logits(fp8_folder, plain)).abs().max() < 1e-4


def test_an_mxfp4_folder_runs_as_its_numbers_do(mxfp4_folder: tuple[Path, dict[str, Tensor]]) -> None:
    folder, plain = mxfp4_folder
    assert (logits(folder) - reference_logits(folder, plain)).abs().max() < 1e-4


def test_what_was_compressed_is_said(fp8_folder: Path) -> None:
    source = checkpoint.resolve(fp8_folder, allow_paths=True)
    assert source.stored_format == "fp8"
    assert any("stored as FP8" in str(note) for note in source.notes())


# --- compressed files that lie ----------------------------------------------------------------------


def refuses(folder: Path, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        weights.tensors(checkpoint.resolve(folder, allow_paths=True))


def change(folder: Path, name: str, tensor: Tensor | None) -> None:
    tensors = load_file(folder / FILE)
    tensors.pop(name)
    if tensor is not None:
        tensors[name] = tensor
    save_file(tensors, folder / FILE)


Q = "model.layers.0.self_attn.q_proj.weight"
UP = "model.layers.0.mlp.experts.gate_up_proj"


def test_fp8_without_its_scale(fp8_folder: Path) -> None:
    change(fp8_folder, f"{Q}_scale_inv", None)
    refuses(fp8_folder, r"q_proj\.weight is stored as FP8 without .*q_proj\.weight_scale_inv")


def test_fp8_scales_of_another_shape(fp8_folder: Path) -> None:
    change(fp8_folder, f"{Q}_scale_inv", torch.ones(6, 1))
    refuses(fp8_folder, r"weight_scale_inv have the shape 6 x 1; .*q_proj\.weight needs 6 x 2")


def test_fp8_scales_that_are_no_numbers(fp8_folder: Path) -> None:
    change(fp8_folder, f"{Q}_scale_inv", torch.ones(6, 2, dtype=torch.int32))
    refuses(fp8_folder, r"weight_scale_inv is stored as I32; this engine reads F32, BF16, F16")


@pytest.mark.parametrize("block", [[0, 128], [128], "128", [128, None], [1.5, 2]])
def test_an_fp8_block_that_is_none(fp8_folder: Path, block: object) -> None:
    config = json.loads((fp8_folder / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = block
    (fp8_folder / "config.json").write_text(json.dumps(config))
    refuses(fp8_folder, r"weight_block_size is .*; it has to be two whole numbers")


def test_mxfp4_without_its_scales(mxfp4_folder: tuple[Path, dict[str, Tensor]]) -> None:
    change(mxfp4_folder[0], f"{UP}_scales", None)
    refuses(mxfp4_folder[0], r"gate_up_proj_blocks is stored as MXFP4 without .*gate_up_proj_scales")


def test_mxfp4_scales_of_another_shape(mxfp4_folder: tuple[Path, dict[str, Tensor]]) -> None:
    change(mxfp4_folder[0], f"{UP}_scales", torch.zeros(6, 192, 3, dtype=torch.uint8))
    refuses(mxfp4_folder[0], r"gate_up_proj_scales have the shape 6 x 192 x 3; .*_blocks needs 6 x 192 x 2")


def test_the_table_of_four_bit_numbers() -> None:
    """E2M1 by its definition: sign, exponent with bias 1, one bit of mantissa, subnormal where the exponent is 0."""
    for code, value in enumerate(FP4_VALUES):
        sign, exponent, mantissa = code >> 3, code >> 1 & 3, code & 1
        size = mantissa / 2 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
        assert value == (-size if sign else size)
