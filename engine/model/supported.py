"""Which of the families a Spec can describe this engine runs, by which decoder, and the sentence for the others."""

from __future__ import annotations

from engine.dense import PLAIN, is_plain
from engine.errors import LabError
from engine.model.feed_forward import CURVES
from engine.model.rotary import KINDS
from engine.spec import Attention, Experts, KimiDelta, LatentAttention, Layer, Spec

__all__ = ["FAMILIES", "PLAIN", "check", "is_plain"]

FAMILIES = {
    **PLAIN,
    "deepseek_v3": "DeepSeek-V3",
    "gemma3": "Gemma 3",
    "gemma3_text": "Gemma 3",
    "gpt2": "GPT-2",
    "gpt_oss": "gpt-oss",
    "granitemoehybrid": "Granite 4 hybrids",
    "kimi_k2": "Kimi-K2",
    "kimi_linear": "Kimi-Linear",
    "mixtral": "Mixtral",
    "nemotron_h": "Nemotron-H",
    "phi3": "Phi-3 and Phi-4",
    "qwen3_5": "Qwen3.5 to 3.8",
    "qwen3_5_moe": "Qwen3.5 to 3.8",
    "qwen3_5_moe_text": "Qwen3.5 to 3.8",
    "qwen3_5_text": "Qwen3.5 to 3.8",
    "qwen3_moe": "Qwen3-MoE",
    "qwen3_next": "Qwen3-Next",
}


def check(spec: Spec) -> None:
    """Let a decoder of a known family pass.

    Raises:
        LabError: the family, or something its config asks for, is not one this engine computes.
    """
    if spec.model_type not in FAMILIES:
        raise LabError(
            "This engine does not run {architecture}; it runs {families}.",
            architecture=spec.architecture or spec.model_type,
            families=", ".join(dict.fromkeys(FAMILIES.values())),
        )
    for layer in spec.layers:
        _check_mixer(layer, spec)
        part = layer.feed_forward
        if part is not None and part.activation not in CURVES:
            raise LabError(
                "The config asks for the activation {activation}; this engine computes {known}.",
                activation=part.activation,
                known=", ".join(CURVES),
            )
        if isinstance(part, Experts) and part.latent is not None:
            raise LabError("{architecture} has layers that this engine does not run.", architecture=spec.architecture)


def _check_mixer(layer: Layer, spec: Spec) -> None:
    mixer = layer.mixer
    if (isinstance(mixer, LatentAttention) and mixer.output_gate) or (
        isinstance(mixer, KimiDelta) and mixer.full_rank_gate
    ):
        raise LabError("{architecture} has layers that this engine does not run.", architecture=spec.architecture)
    rotary = mixer.rotary if isinstance(mixer, Attention | LatentAttention) else None
    if rotary is not None and rotary.kind not in KINDS:
        raise LabError(
            "The config asks for rotary positions of kind {kind}; this engine computes {known}.",
            kind=rotary.kind,
            known=", ".join(KINDS),
        )
