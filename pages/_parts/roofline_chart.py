"""Figures of *Roofline*: where the points lie under the roof, and which bytes they move."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from engine import growth
from engine.measured_points import MeasuredPoint
from engine.roofline import Roof
from pages._parts import figures, palette, ridge_words, terms
from pages._parts.figures import entry
from pages._parts.words import Words

LOWEST = 0.4
RING_PX = 13


def roofline(
    t: Words,
    document: dict[str, Any],
    roof: Roof,
    here: Roof | None,
    measured: Sequence[MeasuredPoint],
    *,
    device: str | None,
    dtype: str,
) -> dict[str, Any]:
    """The roof with the prefill, the decode step, its weights alone and its attention alone.

    Args:
        here: this machine's roof where it has been measured and another device is shown.
        device: whose roof it is, by name; None for this machine.
        dtype: what is multiplied in.
    """
    is_here = device is None
    high = max(4096.0, 6 * roof.ridge_flop_per_byte, 2 * document["prefill"]["intensity"])
    low_rate = LOWEST * roof.bytes_per_s / 2
    if measured:
        low_rate = min(low_rate, min(point.flops_per_s for point in measured) / 2)
    xs = [LOWEST, roof.ridge_flop_per_byte, high]
    roof_line = figures.curve(
        xs,
        [roof.attainable_flops_per_s(x) for x in xs],
        "roof",
        palette.FLOOR,
        dash="dot" if is_here else "dash",
        width=2,
    )
    layout: dict[str, Any] = {
        "xaxis": figures.log_axis(
            t("arithmetic intensity, FLOP/byte"), LOWEST, high, lambda x: t.number(x, 0 if x >= 1 else 1)
        ),
        "yaxis": figures.log_axis(t("rate"), low_rate, 3 * roof.flops_per_s, t.rate, most=6),
    }
    marks = _marks(t, document, roof, here, device=device, dtype=dtype, middle=math.sqrt(LOWEST * high))
    layout = figures.marked(layout, marks)
    layout["shapes"].append(_ring(document["decode"]["weights_only"]["intensity"], roof))
    return figures.component_data(
        t,
        [roof_line, *_points(t, document, roof), *_measured(t, measured)],
        layout,
        _legend(t, measured, is_here=is_here),
        height=430,
        alt=t(
            "Roofline: rate against arithmetic intensity, with the prefill, the decode step, its weights alone "
            "and its attention."
        ),
    )


def _marks(
    t: Words,
    document: dict[str, Any],
    roof: Roof,
    here: Roof | None,
    *,
    device: str | None,
    dtype: str,
    middle: float,
) -> list[Any]:
    """Vertical lines, their names one below the other; left of the `middle` a name stands to the right of its line."""
    limit = document["limits"]["intensity_at_infinite_batch"]
    ridge = roof.ridge_flop_per_byte
    said = ridge_words.mark(t, ridge, dtype, device)
    marks = [figures.at_x(ridge, said, palette.FLOOR, right=ridge < middle)]
    if here is not None:
        ridge = here.ridge_flop_per_byte
        said = ridge_words.mark(t, ridge, dtype)
        marks.append(figures.at_x(ridge, said, figures.TEXT, row=1, right=ridge < middle))
    if limit != float("inf"):
        marks.append(
            figures.at_x(
                limit,
                t("limit of decode {value}", value=t.number(limit, 0)),
                palette.DECODE,
                row=2,
                right=limit < middle,
            )
        )
    return marks


def _ring(intensity: float, roof: Roof) -> dict[str, Any]:
    """Plotly has no dashed marker: a circle of pixels, anchored at the point."""
    size = {"x0": -RING_PX, "x1": RING_PX, "y0": -RING_PX, "y1": RING_PX}
    return {
        "type": "circle",
        "xsizemode": "pixel",
        "ysizemode": "pixel",
        "name": "ring",
        **size,
        "xanchor": intensity,
        "yanchor": roof.attainable_flops_per_s(intensity),
        "line": {"color": palette.WEIGHTS, "width": 2, "dash": "5px,3px"},
    }


def _points(t: Words, document: dict[str, Any], roof: Roof) -> list[dict[str, Any]]:
    prefill, decode = document["prefill"], document["decode"]
    weights, attention = decode["weights_only"]["intensity"], decode["attention"]["intensity"]

    def at(intensity: float, group: str, head: str, more: str, **marker: Any) -> dict[str, Any]:
        rate = roof.attainable_flops_per_s(intensity)
        told = figures.hover([head, t("{value} FLOP/byte", value=t.number(intensity)), t.rate(rate), more])
        return figures.point(intensity, rate, group, told, **marker)

    ring = at(
        weights,
        "ring",
        t("Weights alone"),
        t("a batch of {batch} shares each reading", batch=t.number(decode["batch"])),
        size=2 * RING_PX,
        color="rgba(0,0,0,0)",
    )
    found = [
        ring,
        at(
            prefill["intensity"],
            "prefill",
            t("Prefill of {tokens} tokens", tokens=t.number(prefill["tokens"])),
            _bound(t, prefill["bound"]),
            size=15,
            color=palette.PREFILL,
            symbol="diamond",
        ),
        at(
            decode["intensity"],
            "decode",
            t("Decode step of {batch} sequences", batch=t.number(decode["batch"])),
            _bound(t, decode["bound"]),
            size=14,
            color=palette.DECODE,
        ),
    ]
    if attention is not None:
        found.append(
            at(
                attention,
                "attention",
                t("Attention alone"),
                t("each KV read serves a whole group of query heads"),
                size=8,
                color=palette.STATE,
            )
        )
    return found


def _bound(t: Words, bound: str) -> str:
    return t("memory is the limit") if bound == "memory" else t("arithmetic is the limit")


def _measured(t: Words, measured: Sequence[MeasuredPoint]) -> list[dict[str, Any]]:
    colours = {"prefill": palette.PREFILL, "decode": palette.DECODE}
    return [
        figures.point(
            each.intensity,
            each.flops_per_s,
            "measured",
            figures.hover(
                [
                    t("measured: {phase}", phase=t(each.phase)),
                    each.device[:60],
                    t.rate(each.flops_per_s),
                    t.duration(each.time_s * 1e9),
                    t("run {id}", id=each.run_id),
                ]
            ),
            size=12,
            color="rgba(0,0,0,0)",
            symbol="diamond" if each.phase == "prefill" else "circle",
            line={"width": 2.5, "color": colours[each.phase]},
        )
        for each in measured
    ]


def _legend(t: Words, measured: Sequence[MeasuredPoint], *, is_here: bool) -> figures.Legend:
    found = [
        entry("prefill", t("prefill"), "dot", palette.PREFILL, t(terms.PREFILL)),
        entry("decode", t("decode"), "dot", palette.DECODE, t(terms.DECODE)),
        entry("ring", t("decode, weights alone"), "ring", palette.WEIGHTS, t(terms.WEIGHTS_ALONE)),
        entry("attention", t("decode attention"), "small", palette.STATE, t(terms.ATTENTION_ALONE)),
        entry(
            "roof",
            t("measured roof") if is_here else t("datasheet roof"),
            "dots" if is_here else "dash",
            palette.FLOOR,
            t(terms.ROOFLINE),
        ),
    ]
    if measured:
        found.append(entry("measured", t("measured"), "open", figures.TEXT, t(terms.MEASURED)))
    return found


def bytes_bar(t: Words, document: dict[str, Any]) -> dict[str, Any]:
    """Which bytes the prefill and the decode step move, as two stacked bars on one scale."""
    rows = [(t("decode"), document["decode"]), (t("prefill"), document["prefill"])]
    split = [growth.by_kind(step["bytes"], step["parts"]) for _, step in rows]
    shown = [kind for kind in figures.KIND_COLOURS if any(each[kind] for each in split)]
    names = kind_names(t)
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [name for name, _ in rows],
            "x": [each[kind] / 1e9 for each in split],
            "legendgroup": kind,
            "marker": {"color": figures.KIND_COLOURS[kind], "line": {"width": 0}},
            "width": 0.62,
            "text": [
                _share(t, each[kind], step["bytes"]["total"]) for each, (_, step) in zip(split, rows, strict=True)
            ],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "constraintext": "none",
            "textfont": {"color": "#ffffff", "size": 11},
            "cliponaxis": True,
            "hovertext": [
                figures.hover(
                    [
                        names[kind],
                        t.size(each[kind]),
                        t(
                            "{share} of {total}",
                            share=t.percent(each[kind] / step["bytes"]["total"]),
                            total=t.size(step["bytes"]["total"]),
                        ),
                    ]
                )
                for each, (_, step) in zip(split, rows, strict=True)
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
        for kind in shown
    ]
    layout = {
        "barmode": "stack",
        "margin": {"l": 8, "r": 12, "t": 4, "b": 8},
        "xaxis": {"title": {"text": t("bytes moved, GB"), "standoff": 6, "font": {"size": 12}}, "rangemode": "tozero"},
        "yaxis": {"tickfont": {"size": 12}},
    }
    return figures.component_data(
        t,
        bars,
        layout,
        kind_legend(t, shown),
        height=150,
        alt=t("Bytes moved by the prefill and by the decode step: weights, KV cache, recurrent state."),
    )


def _share(t: Words, part: int, total: int) -> str:
    share = part / total
    return t.percent(share, 0) if share >= 0.06 else ""


def kind_names(t: Words) -> dict[str, str]:
    """The kinds of bytes by name."""
    return {
        "weights": t("weights"),
        "experts": t("experts"),
        "kv": t("KV cache"),
        "window": t("KV of sliding windows"),
        "latent": t("compressed KV (latent)"),
        "state": t("recurrent state"),
        "conv": t("convolution state"),
        "logits": t("logits"),
    }


KIND_TERMS = {
    "weights": terms.WEIGHTS,
    "experts": terms.EXPERTS,
    "kv": terms.KV_CACHE,
    "window": terms.WINDOW,
    "latent": terms.LATENT,
    "state": terms.STATE,
    "conv": terms.CONV,
    "logits": terms.LOGITS,
}


def kind_legend(t: Words, shown: Sequence[str]) -> figures.Legend:
    """A legend of these kinds of bytes."""
    names = kind_names(t)
    return [entry(kind, names[kind], "box", figures.KIND_COLOURS[kind], t(KIND_TERMS[kind])) for kind in shown]
