"""Weights out of folders: exactly what transformers saved, or one sentence that says what is wrong with the files."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_models import edit_config, save_llama, save_qwen2
from transformers import AutoModelForCausalLM

from engine import checkpoint, weights
from engine.errors import LabError

FILE = "model.safetensors"


def read(folder: Path, dtype: torch.dtype | None = None) -> dict[str, torch.Tensor]:
    """Every tensor that the lab reads from a folder, copied."""
    found = weights.tensors(checkpoint.resolve(folder, allow_paths=True), dtype)
    return {name: tensor.clone() for name, tensor in found.items()}


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Save a folder's tensors again after a change."""
    tensors = {name: tensor.clone() for name, tensor in load_file(folder / FILE).items()}
    change(tensors)
    save_file(tensors, folder / FILE, metadata={"format": "pt"})


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    if one.keys() != other.keys():
        return False
    return all(one[name].dtype == other[name].dtype and torch.equal(one[name], other[name]) for name in one)


# --- sound folders ----------------------------------------------------------------------------------


@pytest.mark.parametrize("save", [save_llama, save_qwen2])
def test_tensors_are_those_transformers_loads(tmp_path: Path, save: Callable[[Path], Path]) -> None:
    reference = AutoModelForCausalLM.from_pretrained(save(tmp_path), dtype=torch.float32).state_dict()
    assert same(read(tmp_path), dict(reference))


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    reference = AutoModelForCausalLM.from_pretrained(save_llama(tmp_path, tied=True), dtype=torch.float32).state_dict()
    found = read(tmp_path)
    assert reference.keys() - found.keys() == {"lm_head.weight"}
    assert torch.equal(reference["lm_head.weight"], found["model.embed_tokens.weight"])


def test_a_second_copy_of_a_tied_head_is_ignored(tmp_path: Path) -> None:
    folder = save_llama(tmp_path, tied=True)
    before = read(folder)
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}))
    assert same(read(folder), before)


def test_shards_equal_the_single_file(tmp_path: Path) -> None:
    single = save_llama(tmp_path / "single")
    sharded = save_llama(tmp_path / "sharded", shard_size="8KB")
    assert len(list(sharded.glob("*.safetensors"))) >= 3
    assert same(read(sharded), read(single))


@pytest.mark.parametrize("stored", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("asked", [None, torch.float32, torch.bfloat16])
def test_tensors_come_in_the_dtype_asked_for(tmp_path: Path, stored: torch.dtype, asked: torch.dtype | None) -> None:
    folder = save_llama(tmp_path, dtype=stored)
    expected = {name: tensor.to(asked or stored) for name, tensor in load_file(folder / FILE).items()}
    assert same(read(folder, asked), expected)


def test_names_that_are_not_the_models_are_not_there(tmp_path: Path) -> None:
    folder = save_llama(tmp_path, tied=True)
    rewrite(folder, lambda tensors: tensors.update({"lm_head.weight": torch.zeros(64, 16)}))
    found = weights.tensors(checkpoint.resolve(folder, allow_paths=True))
    assert "lm_head.weight" not in found
    with pytest.raises(KeyError):
        found["lm_head.weight"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see the memory of a process")
def test_reading_takes_no_memory_of_its_own(demo_folder: Path) -> None:
    program = """
        import sys, torch
        from pathlib import Path
        from engine import checkpoint, weights

        def anonymous() -> int:
            lines = Path("/proc/self/status").read_text().splitlines()
            return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))

        source = checkpoint.resolve(sys.argv[1], allow_paths=True)
        before, most = anonymous(), 0
        tensors = weights.tensors(source, torch.float32)
        for name in tensors:
            tensors[name].sum()
            most = max(most, anonymous() - before)
        print(most)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(demo_folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert int(done.stdout) < 50_000_000  # of 538 MB


# --- files that lie ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_llama(tmp_path / "model")


def refuses(folder: Path, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence) as caught:
        read(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kept", [0, 4, 8, 100, 5_000, -1])
def test_a_file_cut_short(folder: Path, kept: int) -> None:
    content = (folder / FILE).read_bytes()
    (folder / FILE).write_bytes(content[:kept])
    refuses(folder, r"model\.safetensors is damaged: (it ends|its length is not) .*; fetch or copy it again\.")


def test_a_file_with_something_added(folder: Path) -> None:
    with (folder / FILE).open("ab") as file:
        file.write(b"more")
    refuses(folder, "is damaged: its length is not what its header says")


def header_of(folder: Path) -> tuple[dict[str, dict[str, object]], bytes]:
    content = (folder / FILE).read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    return json.loads(content[8 : 8 + size]), content[8 + size :]


def write_header(folder: Path, header: object, data: bytes, size: int | None = None) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    (folder / FILE).write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + data)


@pytest.mark.parametrize("size", [2**31, 2**63, 2**64 - 1])
def test_a_header_that_claims_to_be_huge(folder: Path, size: int) -> None:
    header, data = header_of(folder)
    write_header(folder, header, data, size)
    refuses(folder, "is damaged: its header claims to be larger than any is")


@pytest.mark.parametrize("text", [b"", b"{", b"[1]", b'{"a": 3}', b"\xff" * 40, b"[" * 4000, b"null"])
def test_a_header_that_is_no_header(folder: Path, text: bytes) -> None:
    write_header(folder, text, b"")
    refuses(folder, "is damaged: (its header cannot be read|its length is not)")


@pytest.mark.parametrize("offsets", [[-4, 60], [0, 2**62], [64, 0], [8, 72], [2**64, 2**64 + 64]], ids=str)
def test_offsets_that_cannot_be(folder: Path, offsets: list[int]) -> None:
    header, data = header_of(folder)
    header["model.norm.weight"]["data_offsets"] = offsets
    write_header(folder, header, data)
    refuses(folder, "is damaged: (its header|a tensor's shape)")


def test_tensors_that_overlap(folder: Path) -> None:
    header, data = header_of(folder)
    header["model.norm.weight"]["data_offsets"] = header["model.layers.0.input_layernorm.weight"]["data_offsets"]
    write_header(folder, header, data)
    refuses(folder, "is damaged: its header puts tensors where they cannot be")


@pytest.mark.parametrize("shape", [[17], [-16], [2**40, 2**40], ["16"], None])
def test_a_shape_that_its_bytes_do_not_have(folder: Path, shape: object) -> None:
    header, data = header_of(folder)
    header["model.norm.weight"]["shape"] = shape
    write_header(folder, header, data)
    refuses(folder, "is damaged: (a tensor's shape and its bytes do not agree|its header cannot be read)")


# --- files of another model -------------------------------------------------------------------------


def test_a_missing_tensor(folder: Path) -> None:
    rewrite(folder, lambda tensors: [tensors.pop(f"model.layers.{i}.mlp.up_proj.weight") for i in (0, 1)])
    refuses(folder, r"have no tensor model\.layers\.0\.mlp\.up_proj\.weight \(2 in all are missing\)")


def test_a_head_missing_where_it_is_not_tied(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.pop("lm_head.weight"))
    refuses(folder, r"have no tensor lm_head\.weight \(1 in all")


def test_a_tensor_too_many(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(16)}))
    refuses(folder, r"have a tensor model\.layers\.0\.self_attn\.q_proj\.bias \(1 such in all\)")


def test_old_rotary_frequencies_are_no_tensor_too_many(folder: Path) -> None:
    before = read(folder)
    rewrite(folder, lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}))
    assert same(read(folder), before)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hidden_size": 32, "head_dim": 4}, r"has the shape 64 x 16 in model\.safetensors and 64 x 32 by config"),
        ({"vocab_size": 65}, r"has the shape 64 x 16 in model\.safetensors and 65 x 16 by config"),
        ({"num_hidden_layers": 3}, r"have no tensor model\.layers\.2\..*\(9 in all are missing\)"),
        ({"num_hidden_layers": 1}, r"have a tensor model\.layers\.1\..*\(9 such in all\)"),
        ({"num_key_value_heads": 4}, r"k_proj\.weight has the shape 8 x 16 .* and 16 x 16 by config"),
        ({"intermediate_size": 25}, r"mlp\.gate_proj\.weight has the shape 24 x 16 .* and 25 x 16 by config"),
        ({"attention_bias": True}, r"have no tensor .*self_attn\.q_proj\.bias \(8 in all are missing\)"),
        ({"num_attention_heads": 3}, r"num_attention_heads is 3, which is not a multiple"),
        ({"hidden_size": -16}, r"hidden_size is -16"),
        ({"model_type": "mystery"}, r"model type mystery is not supported; supported are .*llama"),
    ],
)
def test_a_config_whose_dimensions_disagree(folder: Path, changes: dict[str, object], sentence: str) -> None:
    edit_config(folder, **changes)
    refuses(folder, sentence)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float64])
def test_a_format_that_is_not_read(folder: Path, dtype: torch.dtype) -> None:
    rewrite(folder, lambda tensors: tensors.update({"model.norm.weight": torch.ones(16, dtype=dtype)}))
    refuses(folder, r"model\.norm\.weight is stored as (I8|F64); this engine reads F32, BF16, F16")


# --- indexes ----------------------------------------------------------------------------------------


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return save_llama(tmp_path / "sharded", shard_size="8KB")


def edit_index(folder: Path, change: Callable[[dict[str, str]], object]) -> None:
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index["weight_map"])
    path.write_text(json.dumps(index))


@pytest.mark.parametrize(
    "name", ["../model/model.safetensors", "/etc/passwd", "a\\b.safetensors", "x.bin", "", 3, "C:x.safetensors"]
)
def test_an_index_reaches_no_other_file(sharded: Path, folder: Path, name: object) -> None:
    edit_index(sharded, lambda weight_map: weight_map.update({"model.norm.weight": name}))
    refuses(sharded, r"names the file .*; only safetensors files of the same folder are read|is not an index of shards")


def test_an_index_whose_shard_is_gone(sharded: Path) -> None:
    next(sharded.glob("*.safetensors")).unlink()
    refuses(sharded, r"lacks the shard model-0000\d-of-0000\d\.safetensors that its index names")


def test_a_tensor_in_two_shards(sharded: Path) -> None:
    one, other = sorted(sharded.glob("*.safetensors"))[:2]
    tensors = load_file(other) | {next(iter(load_file(one))): torch.zeros(3)}
    save_file(tensors, other, metadata={"format": "pt"})
    refuses(sharded, rf"is both in {one.name} and in {other.name}")


@pytest.mark.parametrize("content", ["", "[]", '{"weight_map": 3}', '{"weight_map": {}}', '{"weight_map": {"a": []}}'])
def test_an_index_that_is_none(sharded: Path, content: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(content)
    refuses(sharded, "is not an index of shards")


def test_pickled_weights_are_never_opened(folder: Path) -> None:
    (folder / FILE).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    refuses(folder, "holds pickled weights, .* never opened: convert them to safetensors")


def test_a_folder_without_weights(folder: Path) -> None:
    (folder / FILE).unlink()
    refuses(folder, r"holds no model\.safetensors and no index of shards")


# --- random weights ---------------------------------------------------------------------------------


def test_random_weights_have_every_tensor_of_the_spec() -> None:
    source = checkpoint.resolve("tiny-3.7m", allow_paths=False)
    found = weights.tensors(source)
    assert {name: tuple(tensor.shape) for name, tensor in found.items()} == source.spec.tensors()
    assert all(tensor.dtype == torch.float32 for tensor in found.values())


def pcg64(seed: int, count: int) -> list[int]:
    """The first 64-bit outputs of PCG64, straight from numpy's seeding and O'Neill's recurrence (XSL-RR 128/64)."""
    words = [int(word) for word in np.random.SeedSequence(seed).generate_state(4, np.uint64)]
    mask = 2**128 - 1
    multiplier = 0x2360ED051FC65DA44385DF649FCCF645
    increment = ((words[2] << 64 | words[3]) << 1 | 1) & mask
    state = ((increment + (words[0] << 64 | words[1])) * multiplier + increment) & mask
    outputs = []
    for _ in range(count):
        state = (state * multiplier + increment) & mask
        folded, turn = (state >> 64) ^ (state & (2**64 - 1)), state >> 122
        outputs.append((folded >> turn | folded << (-turn & 63)) & (2**64 - 1))
    return outputs


def test_random_weights_are_the_same_everywhere() -> None:
    found = weights.tensors(checkpoint.resolve("tiny-3.7m", allow_paths=False))
    again = weights.tensors(checkpoint.resolve("tiny-3.7m", allow_paths=False))
    names = list(found)
    assert all(torch.equal(found[name], again[name]) for name in reversed(names))
    seed = hashlib.sha256(b"2 model.embed_tokens.weight").digest()[:16]
    halves = [half for word in pcg64(int.from_bytes(seed, "little"), 4) for half in (word & (2**32 - 1), word >> 32)]
    expected = [((half >> 8) / 2**23 - 1) * (3 / 256) ** 0.5 for half in halves]
    assert found["model.embed_tokens.weight"].flatten()[:8].tolist() == pytest.approx(expected, abs=1e-7)
    assert not torch.equal(found["model.layers.0.mlp.up_proj.weight"], found["model.layers.1.mlp.up_proj.weight"])


def test_random_weights_keep_numbers_at_their_scale() -> None:
    found = weights.tensors(checkpoint.resolve("tiny-3.7m", allow_paths=False))
    matrix = found["model.layers.3.mlp.down_proj.weight"]
    assert matrix.std().item() == pytest.approx(512**-0.5, rel=0.02)
    assert abs(matrix.mean().item()) < 1e-3
    assert matrix.abs().max().item() <= (3 / 512) ** 0.5
    assert torch.equal(found["model.norm.weight"], torch.ones(256))


def test_random_weights_at_the_shape_of_a_known_checkpoint() -> None:
    source = checkpoint.resolve("random:smollm2-135m@layers=2", allow_paths=True)
    found = weights.tensors(source, torch.bfloat16)
    assert found["model.layers.1.mlp.down_proj.weight"].shape == (576, 1536)
    assert found["model.layers.1.mlp.down_proj.weight"].dtype == torch.bfloat16
    assert "model.layers.2.mlp.down_proj.weight" not in found


def test_the_copied_folder_reads_the_same(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    assert same(read(tmp_path / "copy"), read(folder))


def test_a_format_that_the_config_announces_and_no_file_holds_is_refused(tmp_path: Path) -> None:
    save_llama(tmp_path)
    edit_config(tmp_path, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]})
    with pytest.raises(LabError, match="stored as fp8, but no file holds a tensor in that format"):
        read(tmp_path)
