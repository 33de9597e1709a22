"""Which of the families a Spec can describe this engine runs, and the sentence for those it does not."""

from __future__ import annotations

from engine.errors import LabError
from engine.model.rotary import KINDS
from engine.spec import Attention, Mlp, Spec

# model_type of config.json -> how a reader knows it
FAMILIES = {
    "llama": "Llama 1 to 3 (SmolLM2, TinyLlama)",
    "mistral": "Mistral without a sliding window",
    "qwen2": "Qwen2 and Qwen2.5",
    "qwen3": "Qwen3",
}


def check(spec: Spec) -> None:
    """Let a dense decoder of a known family pass.

    Raises:
        LabError: the family, or something its config asks for, is not one this engine computes.
    """
    if spec.model_type not in FAMILIES:
        raise LabError(
            "This engine does not run {architecture}; it runs {families}.",
            architecture=spec.architecture,
            families=", ".join(FAMILIES.values()),
        )
    for layer in spec.layers:
        if not isinstance(layer.mixer, Attention) or not isinstance(layer.feed_forward, Mlp):
            raise LabError("{architecture} has layers that this engine does not run.", architecture=spec.architecture)
        _check_attention(layer.mixer)
        if layer.feed_forward.activation not in ("silu", "swish") or not layer.feed_forward.gated:
            raise LabError(
                "The config asks for the activation {activation}; this engine computes a gated silu.",
                activation=layer.feed_forward.activation,
            )


def _check_attention(mixer: Attention) -> None:
    if mixer.window is not None:
        raise LabError(
            "The config asks for a sliding window of {window} positions; this engine runs full attention only.",
            window=mixer.window,
        )
    if mixer.output_gate or mixer.sinks:
        raise LabError("The config asks for gated attention or attention sinks, which this engine does not run.")
    if mixer.rotary is None or mixer.rotary.dims != mixer.head_dim:
        raise LabError("The config does not turn whole heads by their position; this engine runs only models that do.")
    if mixer.rotary.kind not in KINDS:
        raise LabError(
            "The config asks for rotary positions of kind {kind}; this engine computes {known}.",
            kind=mixer.rotary.kind,
            known=", ".join(KINDS),
        )
