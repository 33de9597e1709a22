"""Folders as transformers saves them, of every family: loaded by path, the same logits; damaged, one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from family_helpers import CONFIGS
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine import checkpoint, weights
from engine.errors import LabError
from engine.model import load

FILE = "model.safetensors"
IDS = torch.tensor([[5, 80, 3, 200, 41]])


def save(kind: str, folder: Path) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[kind](), dtype=torch.float32)
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_folder_of_any_family_gives_transformers_logits(kind: str, tmp_path: Path) -> None:
    reference = save(kind, tmp_path)
    with torch.inference_mode():
        expected = reference(IDS).logits[:, -1]
    assert (load(str(tmp_path)).prefill(IDS) - expected).abs().max() < 1e-4


@pytest.fixture
def hybrid(tmp_path: Path) -> Path:
    """Gated DeltaNet, attention and experts in one folder."""
    save("qwen3.5-moe", tmp_path)
    return tmp_path


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / FILE)
    change(tensors)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / FILE)


def refuses(folder: Path, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence) as caught:
        weights.tensors(checkpoint.resolve(folder, allow_paths=True))
    assert "\n" not in str(caught.value)


def ending(tensors: dict[str, Tensor], end: str) -> str:
    return next(name for name in sorted(tensors) if name.endswith(end))


def test_a_missing_tensor(hybrid: Path) -> None:
    rewrite(hybrid, lambda tensors: tensors.pop(ending(tensors, "linear_attn.A_log")))
    refuses(hybrid, r"have no tensor model\.layers\.0\.linear_attn\.A_log \(1 in all are missing\)")


def test_a_missing_expert(hybrid: Path) -> None:
    def drop(tensors: dict[str, Tensor]) -> None:
        name = ending(tensors, ("experts.7.up_proj.weight"))
        tensors.pop(name)

    rewrite(hybrid, drop)
    refuses(hybrid, r"experts\.gate_up_proj (has the shape|cannot be put together)")


def test_a_tensor_too_many(hybrid: Path) -> None:
    rewrite(hybrid, lambda tensors: tensors.update({"model.layers.0.linear_attn.extra.weight": torch.zeros(3)}))
    refuses(hybrid, r"have a tensor model\.layers\.0\.linear_attn\.extra\.weight \(1 such in all\)")


def test_a_tensor_of_another_shape(hybrid: Path) -> None:
    rewrite(hybrid, lambda tensors: tensors.update({ending(tensors, "linear_attn.A_log"): torch.zeros(5)}))
    refuses(hybrid, r"linear_attn\.A_log has the shape 5 in model\.safetensors and 6 by config\.json")


def test_a_tensor_of_another_dtype(hybrid: Path) -> None:
    rewrite(hybrid, lambda tensors: tensors.update({ending(tensors, "A_log"): torch.zeros(6, dtype=torch.int64)}))
    refuses(hybrid, r"A_log is stored as I64; this engine reads F32, BF16, F16, FP8 in blocks, MXFP4")


@pytest.mark.parametrize("name", ["mtp.layers.0.mlp.gate.weight", "model.visual.blocks.0.attn.qkv.weight"])
def test_what_a_text_step_does_not_read_may_be_there(hybrid: Path, name: str) -> None:
    before = load(str(hybrid)).prefill(IDS)
    rewrite(hybrid, lambda tensors: tensors.update({name: torch.ones(3, 3)}))
    assert torch.equal(load(str(hybrid)).prefill(IDS), before)


def test_layers_for_more_tokens_at_once_may_be_there(tmp_path: Path) -> None:
    """DeepSeek-V3 numbers its MTP layer on from the last; without one in the config it has no place."""
    kind = next(kind for kind in CONFIGS if kind.startswith("deepseek"))
    save(kind, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    extra = f"model.layers.{config['num_hidden_layers']}.eh_proj.weight"
    rewrite(tmp_path, lambda tensors: tensors.update({extra: torch.ones(3, 3)}))
    for predicted, fits in ((1, True), (0, False)):
        (tmp_path / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": predicted}))
        source = checkpoint.resolve(tmp_path, allow_paths=True)
        if fits:
            weights.tensors(source)
        else:
            with pytest.raises(LabError, match=r"have a tensor model\.layers\.4\.eh_proj\.weight"):
                weights.tensors(source)
