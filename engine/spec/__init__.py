"""A checkpoint's dimensions, read from its config.json alone: `read(config) -> Spec` for every family.

    >>> spec = read(json.loads(Path("config.json").read_text()))
    >>> spec.parameters.trunk, spec.layers[0].mixer.kv_heads

Knows configs and shapes. Knows nothing of bytes, devices or torch, and never executes anything from a checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.errors import LabError
from engine.spec import dense, hybrids, mixtures, recipe
from engine.spec.config import Fields
from engine.spec.experts import Experts
from engine.spec.latent import LatentAttention
from engine.spec.parts import Attention, Mlp, Rotary, Weight
from engine.spec.recipe import Recipe, Router
from engine.spec.recurrent import GatedDeltaNet, KimiDelta, Mamba2
from engine.spec.types import Extra, Layer, Norm, Parameters, Quantization, Spec

__all__ = [
    "FAMILIES",
    "Attention",
    "Experts",
    "Extra",
    "GatedDeltaNet",
    "KimiDelta",
    "LatentAttention",
    "Layer",
    "Mamba2",
    "Mlp",
    "Norm",
    "Parameters",
    "Quantization",
    "Recipe",
    "Rotary",
    "Router",
    "Spec",
    "Weight",
    "from_folder",
    "read",
]

# model_type -> its reader. The keys are what a config says of itself, so they are also what an error can list.
FAMILIES: dict[str, Callable[[Fields], Spec]] = {
    "bamba": hybrids.bamba,
    "deepseek_v2": mixtures.deepseek_v2,
    "deepseek_v3": mixtures.deepseek_v3,
    "gemma2": dense.gemma2,
    "gemma3": dense.gemma3,
    "gemma3_text": dense.gemma3,
    "gpt2": dense.gpt2,
    "gpt_oss": mixtures.gpt_oss,
    "granite": dense.llama,
    "granitemoehybrid": hybrids.granite_hybrid,
    "kimi_k2": mixtures.deepseek_v3,
    "kimi_k3": hybrids.kimi_linear,
    "kimi_linear": hybrids.kimi_linear,
    "llama": dense.llama,
    "mistral": dense.mistral,
    "mixtral": mixtures.mixtral,
    "nemotron_h": hybrids.nemotron_h,
    "phi3": dense.phi3,
    "qwen2": dense.qwen2,
    "qwen2_moe": mixtures.qwen2_moe,
    "qwen3": dense.qwen3,
    "qwen3_5": hybrids.qwen3_5,
    "qwen3_5_moe": hybrids.qwen3_5,
    "qwen3_5_moe_text": hybrids.qwen3_5,
    "qwen3_5_text": hybrids.qwen3_5,
    "qwen3_moe": mixtures.qwen3_moe,
    "qwen3_next": hybrids.qwen3_next,
    "smollm3": dense.smollm3,
}


def read(config: Mapping[str, Any]) -> Spec:
    """The Spec of a parsed config.json.

    Raises:
        LabError: a model type that is not supported (with the list of those that are), or a value that is missing, of
            the wrong type, out of range, or at odds with another.
    """
    if not isinstance(config, Mapping):
        raise LabError("A config.json has to hold one JSON object, not a {kind}.", kind=type(config).__name__)
    fields = Fields(config)
    kind = fields.text("model_type", default="")
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        if not kind:
            raise LabError("The config has no model_type; supported are {known}.", known=known)
        raise LabError("The model type {kind} is not supported; supported are {known}.", kind=kind, known=known)
    return replace(FAMILIES[kind](fields), recipe=recipe.read(config))


def from_folder(folder: str | Path) -> Spec:
    """The Spec of a folder in Hugging Face layout, or of the config.json itself.

    Raises:
        LabError: no config.json, one that is not JSON, or one that `read` refuses.
    """
    path = Path(folder)
    path = path if path.suffix == ".json" else path / "config.json"
    try:
        if not path.is_file():
            raise OSError  # not there; or a named pipe, which would be waited for
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = "it has no readable config.json"
        raise LabError("{folder} is not a model folder: {reason}.", folder=str(folder), reason=reason) from error
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LabError("{path} is not valid JSON.", path=str(path)) from error
    return read(config)
