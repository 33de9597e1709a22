"""Which models the dense decoder runs, and which of those the compiled kernels can take. Knows no torch.

That has to be known before the engine has a request: what only the kernels can do is then refused at once.
"""

from __future__ import annotations

from engine.spec import Attention, Layer, Mlp, Spec

# model_type of config.json -> how a reader knows it
PLAIN = {
    "llama": "Llama 1 to 3 (SmolLM2, TinyLlama)",
    "mistral": "Mistral",
    "qwen2": "Qwen2 and Qwen2.5",
    "qwen3": "Qwen3",
}
TILE = 32
"""What the inner size of every matrix has to be a multiple of: the numbers that a kernel takes at a time."""


def is_plain(spec: Spec) -> bool:
    """Whether the dense decoder runs it: full attention turning whole heads, a gated silu, nothing else."""
    return spec.model_type in PLAIN and all(_plain_layer(layer) for layer in spec.layers)


def fits_kernels(spec: Spec) -> bool:
    """Whether the kernels can take its steps: layers all alike, of sizes that leave no rest."""
    mixer, feed = spec.layers[0].mixer, spec.layers[0].feed_forward
    if not is_plain(spec) or not isinstance(mixer, Attention) or not isinstance(feed, Mlp):
        return False
    alike = all(layer.mixer == mixer and layer.feed_forward == feed for layer in spec.layers)
    sizes = (spec.hidden_size, mixer.heads * mixer.head_dim, mixer.head_dim, feed.width)
    return alike and all(size % TILE == 0 for size in sizes)


def _plain_layer(layer: Layer) -> bool:
    mixer, part = layer.mixer, layer.feed_forward
    if not isinstance(mixer, Attention) or not isinstance(part, Mlp) or mixer.rotary is None:
        return False
    varied = mixer.window is not None or mixer.output_gate or mixer.sinks
    turns_whole = mixer.rotary.dims == mixer.head_dim and mixer.rotary.attention_factor == 1
    return not varied and turns_whole and part.gated and part.activation in ("silu", "swish")
