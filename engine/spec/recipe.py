"""How a family computes what its dimensions leave open: scalings, norms centred on zero, the router's rule.

None of this changes a byte or a matrix; leaving any of it out gives wrong numbers that look right. The sources are
the families' published model code, as transformers 5.24 reproduces it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.spec.config import Fields

# "softmax": over all experts, then the best k. "softmax-chosen": the best k, then softmax over those.
# "sigmoid": each expert scored alone, chosen by score plus a learned correction.
RouterRule = Literal["softmax", "softmax-chosen", "sigmoid"]


@dataclass(frozen=True, slots=True)
class Router:
    """How experts are chosen and weighted.

    renormalise: the chosen weights are made to add up to 1. groups, groups_kept: only the best groups of experts
    are looked at. scale: the weights are multiplied by it at the end.
    """

    rule: RouterRule = "softmax"
    renormalise: bool = True
    groups: int = 1
    groups_kept: int = 1
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a decoder multiplies, shifts or clamps beside its weights. The defaults are Llama's.

    zero_centred: norms of hidden size and of q and k multiply by 1 + w. attention_scale: in place of 1/sqrt(d).
    interleaved_rotary: the checkpoint pairs dimensions (0, 1), (2, 3), ... instead of (i, i + d/2).
    clamp, swish: gpt-oss's gate g sigmoid(swish g), with gate and up held within the clamp.
    time_step_min: Mamba2's smallest step in a prompt. norm_groups: its gated norm works on so many parts apart.
    """

    zero_centred: bool = False
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logits_divisor: float = 1.0
    attention_scale: float | None = None
    interleaved_rotary: bool = False
    router: Router = Router()
    clamp: float | None = None
    swish: float = 1.0
    time_step_min: float = 0.0
    norm_groups: int = 1


PLAIN = Recipe()


def read(config: Mapping[str, Any]) -> Recipe:
    """The recipe of a parsed config.json of any family.

    Raises:
        LabError: a value of the wrong type or out of range.
    """
    top = Fields(config)
    fields = top.part("text_config") or top
    kind = fields.text("model_type", default=top.text("model_type", default="")).removesuffix("_text")
    return RECIPES.get(kind, _plain)(fields)


def _plain(fields: Fields) -> Recipe:
    return PLAIN


def _qwen_hybrid(fields: Fields) -> Recipe:
    return Recipe(zero_centred=True, router=Router(renormalise=fields.flag("norm_topk_prob", default=True)))


def _qwen3_moe(fields: Fields) -> Recipe:
    return Recipe(router=Router(renormalise=fields.flag("norm_topk_prob", default=False)))


def _gpt_oss(fields: Fields) -> Recipe:
    return Recipe(
        router=Router("softmax-chosen"),
        clamp=fields.number("swiglu_limit", default=7.0),
        swish=fields.number("swiglu_alpha", default=1.702),
    )


def _gemma3(fields: Fields) -> Recipe:
    return Recipe(
        zero_centred=True,
        embedding_scale=fields.size("hidden_size") ** 0.5,
        attention_scale=fields.number("query_pre_attn_scalar", default=256.0) ** -0.5,
    )


def _deepseek_v3(fields: Fields) -> Recipe:
    return Recipe(interleaved_rotary=fields.flag("rope_interleave", default=True), router=_sigmoid_router(fields))


def _kimi_linear(fields: Fields) -> Recipe:
    return Recipe(router=_sigmoid_router(fields, groups="num_expert_group", renormalise="moe_renormalize"))


def _sigmoid_router(fields: Fields, *, groups: str = "n_group", renormalise: str = "norm_topk_prob") -> Router:
    return Router(
        "sigmoid",
        renormalise=fields.flag(renormalise, default=True),
        groups=fields.size(groups, default=1),
        groups_kept=fields.size("topk_group", default=1),
        scale=fields.number("routed_scaling_factor", default=1.0),
    )


def _nemotron_h(fields: Fields) -> Recipe:
    return Recipe(
        time_step_min=fields.number("time_step_min", default=0.001),
        norm_groups=fields.size("n_groups", default=8),
    )


def _granite_hybrid(fields: Fields) -> Recipe:
    return Recipe(
        embedding_scale=fields.number("embedding_multiplier", default=1.0),
        residual_scale=fields.number("residual_multiplier", default=1.0),
        logits_divisor=fields.number("logits_scaling", default=1.0),
        attention_scale=fields.number("attention_multiplier", default=1.0),
        router=Router("softmax-chosen"),
        norm_groups=fields.size("mamba_n_groups", default=1),
    )


RECIPES: dict[str, Callable[[Fields], Recipe]] = {
    "deepseek_v3": _deepseek_v3,
    "gemma3": _gemma3,
    "gpt_oss": _gpt_oss,
    "granitemoehybrid": _granite_hybrid,
    "kimi_k2": _deepseek_v3,
    "kimi_linear": _kimi_linear,
    "nemotron_h": _nemotron_h,
    "qwen3_5": _qwen_hybrid,
    "qwen3_5_moe": _qwen_hybrid,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _qwen_hybrid,
}
