"""The same positions and the same recipe, however a config spells them."""

from __future__ import annotations

from typing import Any

import pytest
from family_helpers import CONFIGS, config_of, reference

from engine import catalogue, spec
from engine.spec.recipe import PLAIN, Recipe, Router

YARN = {"factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
YARN["original_max_position_embeddings"] = 4096
# catalogue id -> its rotary settings as newer configs write them; the catalogue has the older spelling
NEWER: dict[str, dict[str, Any]] = {
    "deepseek-ai/DeepSeek-V3": {"rope_type": "yarn", "rope_theta": 10_000, **YARN},
    "google/gemma-3-27b-it": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    },
    "Qwen/Qwen3-Next-80B-A3B-Instruct": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}
OLDER = ("rope_theta", "rope_scaling", "rope_local_base_freq", "partial_rotary_factor")


@pytest.mark.parametrize("model_id", NEWER)
def test_both_spellings_of_rotary_settings(model_id: str) -> None:
    config = catalogue.config(model_id)
    inner = config.get("text_config", config)
    newer = {key: value for key, value in inner.items() if key not in OLDER} | {"rope_parameters": NEWER[model_id]}
    found = spec.read(newer if inner is config else {**config, "text_config": newer})
    assert found.layers == catalogue.load(model_id).layers


@pytest.mark.parametrize("kind", ["qwen3.5", "qwen3.5-moe", "gemma3"])
def test_a_text_config_alone_and_inside_a_larger_one(kind: str) -> None:
    inside = config_of(reference(kind))
    outer = {"model_type": inside["model_type"].removesuffix("_text"), "text_config": inside}
    outer["tie_word_embeddings"] = inside["tie_word_embeddings"]
    alone, nested = spec.read(inside), spec.read(outer)
    assert (alone.layers, alone.recipe, alone.tied) == (nested.layers, nested.recipe, nested.tied)


def test_recipes_of_known_checkpoints() -> None:
    """Values from the checkpoints' own configs and their published model code."""
    found = {name: catalogue.load(name).recipe for name in catalogue.ids()}
    assert found["meta-llama/Llama-3.1-8B"] == PLAIN
    assert found["Qwen/Qwen3.8-27B"] == Recipe(zero_centred=True)
    assert found["Qwen/Qwen3-30B-A3B"] == Recipe(router=Router(renormalise=True))
    assert found["openai/gpt-oss-20b"] == Recipe(router=Router("softmax-chosen"), clamp=7.0, swish=1.702)
    assert found["google/gemma-3-27b-it"] == Recipe(
        zero_centred=True, embedding_scale=5376**0.5, attention_scale=168**-0.5
    )
    deepseek = Router("sigmoid", groups=8, groups_kept=4, scale=2.5)
    assert found["deepseek-ai/DeepSeek-V3"] == Recipe(interleaved_rotary=True, router=deepseek)
    kimi = Router("sigmoid", scale=2.446)
    assert found["moonshotai/Kimi-Linear-48B-A3B-Instruct"] == Recipe(router=kimi)


def test_every_family_with_a_recipe_of_its_own_is_tried_against_the_reference() -> None:
    tried = {config_of(reference(kind))["model_type"].removesuffix("_text") for kind in CONFIGS}
    own = set(spec.recipe.RECIPES) - {"kimi_k2"}  # DeepSeek-V3's code, run under its name
    assert own <= tried
