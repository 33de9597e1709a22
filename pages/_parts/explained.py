"""The roofline inequality with every term a button: its meaning, and its value now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from pages._parts import terms
from pages._parts.asked import Asked
from pages._parts.words import Words


def inequality(t: Words, asked: Asked, document: dict[str, Any]) -> None:
    """t ≥ max(FLOPs/π, bytes/β), and I against π/β says which is larger.

    Each term opens what it means and what it is for both steps.
    """

    def both(write: Callable[[dict[str, Any]], str]) -> list[str]:
        prefill, decode = document["prefill"], document["decode"]
        return [
            t("prefill, T = {tokens}: **{value}**", tokens=t.number(prefill["tokens"]), value=write(prefill)),
            t("decode, B = {batch}: **{value}**", batch=t.number(decode["batch"]), value=write(decode)),
        ]

    def flops(step: dict[str, Any]) -> str:
        return f"{t.flops(step['flops'])} / π = {milliseconds(t, step['compute_time_s'])}"

    def moved(step: dict[str, Any]) -> str:
        return f"{t.size(step['bytes']['total'])} / β = {milliseconds(t, step['memory_time_s'])}"

    device = t("This machine") if asked.device.id == "this-machine" else asked.device.name
    on = {"device": device, "dtype": asked.dtype}
    rate, bandwidth = peak(t, asked.roof.flops_per_s), t.bandwidth(asked.roof.bytes_per_s)
    ridge = t.number(asked.roof.ridge_flop_per_byte)
    quotient = t("{rate} over {bandwidth}: **{value}** FLOP/byte", rate=rate, bandwidth=bandwidth, value=ridge)
    intensity = both(lambda step: f"{t.number(step['intensity'])} FLOP/byte")
    shown: list[tuple[str, str, str, list[str]]] = [
        ("t", "≥ max(", terms.STEP_TIME, both(lambda step: milliseconds(t, step["time_s"]))),
        ("FLOPs", "/", terms.FLOPS, both(flops)),
        ("π", ",", terms.PEAK, [t("{device}, {dtype}: **{value}**", value=rate, **on)]),
        ("bytes", "/", terms.BYTES, both(moved)),
        ("β", "):", terms.BANDWIDTH, [t("{device}: **{value}**", device=device, value=bandwidth)]),
        ("I", t("against"), terms.ARITHMETIC_INTENSITY, intensity),
        ("π / β", "", terms.RIDGE, [quotient]),
    ]
    with st.container(key="inequality", horizontal=True, gap="xxsmall", vertical_alignment="center"):
        for term, sign, meaning, values in shown:
            with st.popover(term, type="tertiary", key=f"term_{term}", help=t("What is {term}?", term=term)):
                st.markdown(t(meaning))
                st.markdown("\n".join(f"- {value}" for value in values))
            if sign:
                st.markdown(sign, width="content")


def milliseconds(t: Words, time_s: float) -> str:
    """A time in milliseconds to four significant figures, as the lesson prints its times: 15.34 ms."""
    ms = time_s * 1e3
    digits = 1 if ms >= 100 else 2 if ms >= 1 else 3 if ms >= 0.01 else 5
    return f"{t.number(ms, digits)} ms"


def peak(t: Words, flops_per_s: float) -> str:
    """A peak to four significant figures, as data sheets print them: 989.5 TFLOP/s."""
    return f"{t.number(flops_per_s / 1e12, 1)} TFLOP/s" if flops_per_s >= 1e13 else t.rate(flops_per_s)
