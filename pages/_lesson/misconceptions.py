"""What many believe, each as something to try on *Devices*: the sentence, the numbers against it, prepared settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from engine import lesson
from engine.errors import N_
from pages._parts import scene_controls
from pages._parts.folded import folded
from pages._parts.words import Words

ANCHOR = {"model": lesson.ANCHOR, "preset": "lesson", "weights": "own", "kv": "own", "state": "own"}
ON_CARD = ANCHOR | {"device": lesson.H100}


@dataclass(frozen=True)
class Belief:
    """A sentence that sounds right, and what is. settings: those of this page's controls; page, query: of another."""

    sentence: str
    truth: str
    button: str
    figures: dict[str, int]
    settings: dict[str, Any] | None = None
    page: str = ""
    query: dict[str, str] | None = None


BELIEFS: tuple[Belief, ...] = (
    Belief(
        N_("“Writing is slow because the model has so much to compute.”"),
        N_(
            "The KV cache leaves one token to compute for each step: {flops_only_ms} ms of arithmetic. Reading "
            "{weight_gb} GB of weights takes {h100_ms} ms."
        ),
        N_("Compute alone beside bytes alone"),
        {"flops_only_ms": 3, "weight_gb": 2, "h100_ms": 1},
        ANCHOR | {"before": lesson.H100, "device": lesson.H200, "estimate": "weights", "batch": 1},
    ),
    Belief(
        N_("“A card with three times the compute writes three times as fast.”"),
        N_(
            "From A100 to H100 the compute goes from {a100_tflops} to {h100_tflops} TFLOP/s (× "
            "{compute_a100_h100}), the bandwidth from {a100_tb_per_s} to {h100_tb_per_s} TB/s. By its "
            "weights alone a token goes from {a100_ms} to {h100_ms} ms: × {speed_a100_h100}."
        ),
        N_("From A100 to H100"),
        {
            "a100_tflops": 0,
            "h100_tflops": 1,
            "compute_a100_h100": 2,
            "a100_tb_per_s": 3,
            "h100_tb_per_s": 2,
            "a100_ms": 1,
            "h100_ms": 1,
            "speed_a100_h100": 2,
        },
        ANCHOR | {"before": lesson.A100, "device": lesson.H100, "estimate": "weights", "batch": 1},
    ),
    Belief(
        N_("“Prefill is always bound by compute.”"),
        N_(
            "Only a prompt of more than about {ridge} tokens is, on an H100 in bf16. Four tokens have an intensity of "
            "{prefill_4_intensity} and wait for bytes: {prefill_4_ms} ms; one token written after them takes "
            "{decode_after_4_ms}."
        ),
        N_("A prompt of four tokens"),
        {"ridge": 0, "prefill_4_intensity": 1, "prefill_4_ms": 2, "decode_after_4_ms": 2},
        page="roofline",
        query=ON_CARD | {"prompt": "4", "batch": "1", "context": "4096"},
    ),
    Belief(
        N_("“A batch that is large enough uses all of the compute.”"),
        N_(
            "The weights are shared; the {own_mb_4096} MB of cache and state that each sequence moves in a step at a "
            "context of 4,096 are not. So the intensity nears {limit_intensity_4096} and never reaches the H100's "
            "{ridge}; and {largest_batch_4096} sequences, which hold {held_mb_4096} MB each, fill 80 GB."
        ),
        N_("58 sequences, then 59"),
        {"own_mb_4096": 0, "held_mb_4096": 0, "limit_intensity_4096": 0, "ridge": 0, "largest_batch_4096": 0},
        page="batch",
        query=ON_CARD | {"batch": "58", "context": "4096"},
    ),
)


def show(t: Words) -> None:
    """The beliefs, folded away until wanted or until the path comes by; then the phases on machines apart."""
    on_path = st.session_state.get("path_step") == "misconceptions"
    label = t("What many believe")
    with folded(label, "beliefs", icon=":material/psychology_alt:", expanded=on_path) as is_open:
        if is_open:
            _beliefs(t)
    label = t("Why DeepSeek-V3 serves the two phases on different machines")
    with folded(label, "phases_apart", icon=":material/call_split:") as is_open:
        if is_open:
            st.markdown(_apart(t))
            query = {"model": lesson.MIXTURE, "device": lesson.H800, "prompt": "4096", "preset": "lesson"}
            st.page_link(
                "roofline.py",
                label=t("DeepSeek-V3 on the roofline"),
                icon=":material/ads_click:",
                query_params={**query, "lang": t.language},
            )


def _beliefs(t: Words) -> None:
    for number, belief in enumerate(BELIEFS):
        filled = {name: t.number(lesson.figure(name), digits) for name, digits in belief.figures.items()}
        st.markdown(f"**{t(belief.sentence)}** {t(belief.truth, **filled)}")
        if belief.settings is not None:
            st.button(t(belief.button), key=f"belief_{number}", on_click=scene_controls.choose, kwargs=belief.settings)
        else:
            query = {**(belief.query or {}), "lang": t.language}
            st.page_link(f"{belief.page}.py", label=t(belief.button), icon=":material/ads_click:", query_params=query)


def _apart(t: Words) -> str:
    figures = {
        name: t.number(lesson.figure(name), 0)
        for name in ("expert_tokens", "expert_ridge_rows", "tokens_in_flight", "mixture_bound_from")
    }
    return t(
        "Its report (section 3.4) names {prefill} GPUs as the smallest unit for prefill and {decode} for "
        "decode, and says of decode that an expert usually sees at most {expert_tokens} tokens, so that memory "
        "access is the bottleneck. The arithmetic agrees: on an H800 an expert's FP8 matrices need "
        "{expert_ridge_rows} rows before they wait for compute. For each expert to see even {expert_tokens}, a "
        "step needs {tokens_in_flight} tokens in flight, from as many requests; their caches do not fit on a "
        "few cards. Prefill gets its rows from the prompts themselves: {mixture_bound_from} tokens are enough. "
        "What is bound by compute and what is bound by memory would hinder each other on one machine.",
        prefill=lesson.PREFILL_GPUS,
        decode=lesson.DECODE_GPUS,
        **figures,
    )
