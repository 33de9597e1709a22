"""What the families' readers share: rotary positions, head sizes, stored formats, and the Spec around the layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from engine.errors import LabError
from engine.spec.config import Fields, divisible
from engine.spec.parts import Attention, Mlp, Role, Rotary
from engine.spec.types import Extra, Layer, Norm, Quantization, Spec

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
ROTARY_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
MATRICES: frozenset[Role] = frozenset({"attention", "mlp", "experts", "shared_experts"})
EXPERTS_ONLY: frozenset[Role] = frozenset({"experts"})


def head_dim(config: Fields, heads: int) -> int:
    """The head size: head_dim where the config has one, else hidden size over heads (which must then divide)."""
    if config.has("head_dim"):
        return config.size("head_dim")
    return divisible(config.size("hidden_size"), heads, key="hidden_size", by_key="num_attention_heads")


def rotary(config: Fields, dim: int, *, default_theta: float = 10_000.0, layer_type: str = "full_attention") -> Rotary:
    """Rotary positions from rope_theta / rope_scaling, or from rope_parameters as newer configs write them.

    layer_type: whose positions, where rope_parameters has one entry for each type of layer.

    Raises:
        LabError: a kind of scaling not known here.
    """
    nested = config.part("rope_parameters")
    nested = (nested.part(layer_type) or nested) if nested else None
    scaling = nested or config.part("rope_scaling") or Fields({})
    kind = scaling.text("rope_type", default=scaling.text("type", default="default"))
    if kind == "mrope":  # equal position rows for text: plain rotary positions
        kind = "default"
    if kind not in ROTARY_KINDS:
        raise LabError(
            "The config's rotary scaling is {kind}; known are {known}.", kind=kind, known=", ".join(ROTARY_KINDS)
        )
    holder = nested if nested and nested.has("rope_theta") else config
    share = (nested or config).number(
        "partial_rotary_factor", default=config.number("partial_rotary_factor", default=1.0)
    )
    original = "original_max_position_embeddings"
    return Rotary(
        theta=holder.number("rope_theta", default=default_theta),
        dims=int(dim * share),
        kind=kind,
        factor=scaling.number("factor", default=1.0),
        low_freq_factor=scaling.number("low_freq_factor", default=1.0),
        high_freq_factor=scaling.number("high_freq_factor", default=4.0),
        original_max_position=scaling.size(original) if scaling.has(original) else None,
        **(yarn(scaling) if kind == "yarn" else {}),
    )


def yarn(scaling: Fields) -> dict[str, Any]:
    """YaRN's own numbers (Peng et al., 2023): where its ramp lies, and what it multiplies angles and scores by.

    m(s, a) = 0.1 a ln s + 1 for a context s times longer. DeepSeek gives a as mscale for the cosines and as
    mscale_all_dim for the scores, and divides the one by the other.
    """
    factor = scaling.number("factor", default=1.0)
    # Zero stands for "not used".
    whole, part = (
        scaling.number(key, default=0.0) if scaling.values.get(key) else 0.0 for key in ("mscale_all_dim", "mscale")
    )
    stretch = 0.1 * math.log(max(factor, 1.0))
    if scaling.has("attention_factor"):
        angles = scaling.number("attention_factor", default=1.0)
    elif whole and part:
        angles = (stretch * part + 1) / (stretch * whole + 1)
    else:
        angles = stretch + 1
    return {
        "beta_fast": scaling.number("beta_fast", default=32.0),
        "beta_slow": scaling.number("beta_slow", default=1.0),
        "truncate": scaling.flag("truncate", default=True),
        "attention_factor": angles,
        "score_factor": (stretch * whole + 1) ** 2 if whole else 1.0,
    }


def attention(
    config: Fields,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    qk_norm: bool = False,
    window: int | None = None,
    output_gate: bool = False,
    sinks: bool = False,
    positions: bool = True,
) -> Attention:
    """Grouped-query attention under the usual keys.

    Raises:
        LabError: query heads that the key/value heads do not divide, or sizes that are missing or absurd.
    """
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", default=heads)
    divisible(heads, kv_heads, key="num_attention_heads", by_key="num_key_value_heads")
    dim = head_dim(config, heads)
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=dim,
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        qk_norm=qk_norm,
        window=window,
        rotary=rotary(config, dim) if positions else None,
        output_gate=output_gate,
        sinks=sinks,
    )


def mlp(config: Fields, *, gated: bool = True, bias: bool = False, default_activation: str = "silu") -> Mlp:
    """The dense feed-forward part under the usual keys."""
    activation = config.text("hidden_act", default=config.text("hidden_activation", default=default_activation))
    return Mlp(config.size("intermediate_size"), gated=gated, bias=bias, activation=activation)


def quantization(config: Fields) -> Quantization | None:
    """How the files store weights: none of it quantised, FP8 in 128 x 128 blocks, or MXFP4 experts.

    Raises:
        LabError: a quantisation this lab cannot account for.
    """
    given = config.part("quantization_config")
    if given is None:
        return None
    method = given.text("quant_method", default="none")
    if method == "fp8":
        return Quantization("fp8", MATRICES)
    if method == "mxfp4" or given.text("format", default="") == "mxfp4-pack-quantized":
        return Quantization("mxfp4", EXPERTS_ONLY)
    raise LabError(
        "The config's weights are quantised with {method}; known are fp8 in blocks and mxfp4. "
        "Remove quantization_config and choose a weight format instead.",
        method=method,
    )


def build(
    config: Fields,
    layers: Sequence[Layer],
    *,
    norm: Norm | None = None,
    outer: Fields | None = None,
    extras: Sequence[Extra] = (),
    positions: int = 0,
    tied: bool = False,
) -> Spec:
    """The Spec around its layers. `outer` is the file's top level where the text part is nested inside it."""
    top = outer or config
    stored = config.text(
        "torch_dtype", default=config.text("dtype", default=top.text("torch_dtype", default="bfloat16"))
    )
    state = config.text("mamba_ssm_dtype", default="float32")
    return Spec(
        model_type=top.text("model_type", default=""),
        architecture=(top.names("architectures") or [""])[0],
        hidden_size=config.size("hidden_size", "n_embd"),
        vocab_size=config.size("vocab_size"),
        layers=tuple(layers),
        tied=top.flag("tie_word_embeddings", default=config.flag("tie_word_embeddings", default=tied)),
        max_position=config.size("max_position_embeddings", "n_positions", "model_max_length", default=2048),
        norm=norm or Norm(eps=config.number("rms_norm_eps", default=1e-6)),
        dtype=_known_dtype(stored),
        positions=positions,
        extras=tuple(extras),
        quantization=quantization(config) or quantization(top),
        state_dtype=_known_dtype(state),
        eos_ids=_token_ids(config, "eos_token_id") or _token_ids(top, "eos_token_id"),
        bos_id=next(iter(_token_ids(config, "bos_token_id") or _token_ids(top, "bos_token_id")), None),
    )


def _known_dtype(name: str) -> str:
    if name not in DTYPES:
        raise LabError("The config's dtype is {name}; known are {known}.", name=name, known=", ".join(DTYPES))
    return DTYPES[name]


def _token_ids(config: Fields, key: str) -> tuple[int, ...]:
    """One token id, a list of them, or none at all."""
    if not config.has(key):
        return ()
    return tuple(config.indices(key)) if config.is_list(key) else (config.count(key),)
