"""A model is the same whatever its checkpoint calls its tensors; what no text step reads is not asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from family_helpers import CONFIGS, SIZES, config_of, engine_of, reference, tokens
from model_helpers import engine_logits, worst
from safetensors.torch import load_file

from engine import fitting, ledger
from engine import spec as specs
from engine.errors import LabError
from engine.ledger import Formats
from engine.model import Model
from engine.model.decoder import Decoder
from engine.model.hybrid import HybridDecoder
from engine.model.names import Canonical


@pytest.mark.parametrize("kind", CONFIGS)
def test_names_as_the_families_publish_them(kind: str, tmp_path: Path) -> None:
    """transformers writes files under the names of the published checkpoints, which are not those it works with."""
    theirs = reference(kind)
    theirs.save_pretrained(tmp_path)
    published = load_file(tmp_path / "model.safetensors")
    spec = specs.read(config_of(theirs))
    fitting.check(spec, {name: tuple(tensor.shape) for name, tensor in published.items()}, {})
    ids = tokens(1, 10)
    expected = engine_logits(engine_of(theirs), ids, 8)
    assert worst(engine_logits(HybridDecoder.from_tensors(spec, published), ids, 8), expected) == 0


def test_a_text_part_inside_a_larger_model() -> None:
    theirs = reference("qwen3.5")
    nested = {name.replace("model.", "model.language_model.", 1): t for name, t in theirs.state_dict().items()}
    nested |= {"model.visual.blocks.0.attn.qkv.weight": torch.zeros(1), "mtp.fc.weight": torch.zeros(1)}
    spec = specs.read({"model_type": "qwen3_5", "text_config": config_of(theirs)})
    assert set(Canonical(nested, spec)) == set(theirs.state_dict())
    ids = tokens(1, 10)
    found = engine_logits(HybridDecoder.from_tensors(spec, nested), ids, 8)
    assert worst(found, engine_logits(engine_of(theirs), ids, 8)) == 0


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_made_from_its_dimensions_alone(kind: str) -> None:
    """Random weights have the names of the Spec, with one expert standing for all."""
    spec = specs.read(config_of(reference(kind)))
    made = {name: torch.rand(shape) * 0.1 for name, shape in spec.tensors().items()}
    model = HybridDecoder.from_tensors(spec, made)
    formats = Formats(weights="fp32", kv="fp32", state="fp32")
    assert model.resident_weight_bytes == ledger.resident(spec, formats=formats).weights
    assert all(logits.isfinite().all() for logits in engine_logits(model, tokens(1, 10), 8))


def test_a_missing_tensor_is_named() -> None:
    theirs = reference("qwen3.5")
    tensors = dict(theirs.state_dict())
    del tensors["model.layers.1.linear_attn.A_log"]
    with pytest.raises(LabError, match=r"model\.layers\.1\.linear_attn\.A_log"):
        HybridDecoder.from_tensors(specs.read(config_of(theirs)), tensors)


def test_latent_attention_is_the_same_in_both_its_forms() -> None:
    """Absorbed or re-expanded: equal logits from the same cache."""
    theirs = reference("deepseek-v3")
    spec, ids = specs.read(config_of(theirs)), tokens(3, 24)
    model = HybridDecoder.from_tensors(spec, theirs.state_dict())
    absorbed, held = engine_logits(model, ids, 20), model.cache.bytes
    model.use_latent_form("re-expanded")
    expanded = engine_logits(model, ids, 20)
    assert 0 < worst(absorbed, expanded) < 1e-5
    assert model.cache.bytes == held


def test_the_spec_chooses_the_decoder_and_both_agree_on_a_plain_model() -> None:
    torch.manual_seed(3)
    sizes = {name: size for name, size in SIZES.items() if name != "head_dim"}
    llama = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("llama", **sizes))
    plain = specs.read(llama.config.to_dict())
    chosen, ids = Model.from_tensors(plain, llama.state_dict()), tokens(2, 12)
    assert type(chosen) is Decoder
    general = HybridDecoder.from_tensors(plain, llama.state_dict())
    expected = [chosen.prefill(ids[:, :10]), chosen.decode(ids[:, 10]), chosen.decode(ids[:, 11])]
    assert worst(engine_logits(general, ids, 10), expected) < 1e-5
    assert general.resident_weight_bytes == chosen.resident_weight_bytes
    assert general.cache.bytes == chosen.cache.bytes
    windowed = reference("mistral-v0.1")
    other = Model.from_tensors(specs.read(config_of(windowed)), windowed.state_dict())
    assert type(other) is HybridDecoder
