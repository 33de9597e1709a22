"""Figures of *KV and state*: bytes of one sequence over its context, for several models and inside one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.growth import ContextGrowth
from engine.measured_points import HeldPoint, MeasuredPoint
from engine.roofline import Grid
from pages._parts import figures, palette, terms
from pages._parts.figures import entry
from pages._parts.roofline_chart import kind_names
from pages._parts.words import Words

HEIGHT = 400
Line = tuple[str, str, Grid, str, str]
"""Group, name, values, colour and style of a curve."""

ABOUT = {
    "kv": terms.KV_CACHE,
    "whole": terms.KV_CACHE,
    "window": terms.WINDOW,
    "latent": terms.LATENT,
    "state": terms.STATE,
    "conv": terms.CONV,
    "replaced": terms.REPLACED,
}
# Models have no colour in the lab, and every hue of the palette means a phase or a kind of bytes: so the text's own
# colour and two that mean nothing else, each solid and dashed.
MODEL_LINES = tuple((colour, style) for style in ("line", "dash") for colour in (figures.TEXT, *palette.FREE))


def models(t: Words, grown: Sequence[tuple[str, ContextGrowth]], count: str, context: int) -> dict[str, Any]:
    """One curve a model: everything a sequence holds, or moves in a step."""
    data, legend = [], []
    lowest, highest = float("inf"), 0.0
    for (name, growth), (colour, style) in zip(grown, MODEL_LINES, strict=False):
        total = growth.held if count == "held" else growth.moved
        told = [
            figures.hover([name, t("context {context}", context=t.number(x)), t.size(y)])
            for x, y in zip(growth.context, total, strict=True)
        ]
        data.append(figures.curve(growth.context, total, name, colour, told, **_dashed(style)))
        legend.append(
            entry(name, name, style, colour, t("All a sequence of this model holds or moves beside the weights."))
        )
        lowest, highest = min(lowest, float(total[0])), max(highest, float(total[-1]))
    axis = grown[0][1].context
    layout = {
        "xaxis": figures.power_axis(t("context, tokens"), [float(axis[0]), float(axis[-1])], lambda x: short(t, x)),
        "yaxis": figures.log_axis(_title(t, count), lowest / 2, highest * 2, t.size, most=6),
    }
    mark = figures.at_x(context, t("context {context}", context=t.number(context)), figures.TEXT)
    return figures.component_data(
        t,
        data,
        figures.marked(layout, [mark]),
        legend,
        height=HEIGHT,
        alt=t("Bytes of one sequence against its context, a curve for each model."),
    )


def inside(
    t: Words, growth: ContextGrowth, count: str, crossover: int | None, measured: Sequence[MeasuredPoint] = ()
) -> dict[str, Any]:
    """One model: its KV against its state, and the context at which they are equal; what runs held, as measured."""
    lines = by_kind(t, growth, count)
    if count == "held" and growth.kv_replaced is not None:
        lines.insert(
            1, ("replaced", t("KV, were the recurrent layers attention"), growth.kv_replaced, palette.KV, "dash")
        )
    data, legend = [], []
    for group, name, ys, colour, style in lines:
        told = [
            figures.hover([name, t("context {context}", context=t.number(x)), t.size(y)])
            for x, y in zip(growth.context, ys, strict=True)
        ]
        data.append(figures.curve(growth.context, ys, group, colour, told, **_dashed(style)))
        legend.append(entry(group, name, style, colour, t(ABOUT[group])))
    for each in measured:
        told = [t("measured: {phase}", phase=t(each.phase)), t("run {id}", id=each.run_id), t.size(each.kv_held_bytes)]
        ring: dict[str, Any] = {"size": 11, "color": "rgba(0,0,0,0)", "line": {"width": 2.5, "color": palette.KV}}
        data.append(figures.point(each.context, each.kv_held_bytes, "measured", figures.hover(told), **ring))
    if measured:
        legend.append(entry("measured", t("measured"), "open", palette.KV, t(terms.MEASURED)))
    ends = [float(y) for _, _, line, _, _ in lines for y in (line[0], line[-1]) if y]
    layout = {
        "xaxis": figures.power_axis(
            t("context, tokens"), [float(growth.context[0]), float(growth.context[-1])], lambda x: short(t, x)
        ),
        "yaxis": figures.log_axis(_title(t, count), min(ends) / 2, max(ends) * 2, t.size, most=6),
    }
    marks = (
        []
        if crossover is None
        else [figures.at_x(crossover, t("equal at {context}", context=t.number(crossover)), palette.FLOOR)]
    )
    return figures.component_data(
        t,
        data,
        figures.marked(layout, marks),
        legend,
        height=HEIGHT - 60,
        alt=t("KV cache and recurrent state of one sequence against its context, and where they are equal."),
    )


def run_over_prediction(t: Words, growth: ContextGrowth, held: Sequence[HeldPoint]) -> dict[str, Any]:
    """What one run held, step by step, over what its own model should hold at that context."""
    names = kind_names(t)
    predicted = {"kv": growth.kv_held, "state": growth.parts_held["state"], "conv": growth.parts_held["conv"]}
    data, legend, ends = [], [], []
    for kind, line in predicted.items():
        measured = [getattr(each, kind) for each in held]
        if not any(measured) and not line.any():
            continue
        colour = figures.KIND_COLOURS[kind]
        data.append(figures.curve(growth.context, line, kind, colour))
        told = [
            figures.hover(
                [
                    t("measured: {kind}", kind=names[kind]),
                    t("context {context}", context=t.number(each.context)),
                    t("held {size}", size=t.size(size)),
                ]
            )
            for each, size in zip(held, measured, strict=True)
        ]
        data.append(
            figures.curve([each.context for each in held], measured, kind, colour, told)
            | {
                "mode": "markers",
                "marker": {"size": 7, "color": "rgba(0,0,0,0)", "line": {"width": 2, "color": colour}},
            }
        )
        legend.append(entry(kind, names[kind], "line", colour, t(ABOUT[kind])))
        ends += [each for each in (*measured, float(line[-1])) if each]
    legend.append(entry("", t("measured"), "open", figures.TEXT, t(terms.MEASURED)))
    layout = {
        "xaxis": {"title": {"text": t("context, tokens"), "standoff": 8, "font": {"size": 12}}, "rangemode": "tozero"},
        "yaxis": figures.log_axis(_title(t, "held"), min(ends) / 2, max(ends) * 2, t.size, most=6),
    }
    return figures.component_data(
        t,
        data,
        layout,
        legend,
        height=HEIGHT - 60,
        alt=t("What a run's cache and state held as its context grew, as measured, over the prediction."),
    )


def by_kind(t: Words, growth: ContextGrowth, count: str) -> list[Line]:
    """What a sequence holds, or moves, by kind. The state is drawn with its convolution, which is also drawn alone."""
    parts = growth.parts_held if count == "held" else growth.parts_moved
    names = kind_names(t)
    lines: list[Line] = [
        (kind, names[kind], parts[kind], figures.KIND_COLOURS[kind], "line") for kind in ("kv", "window", "latent")
    ]
    if sum(bool(line[2].any()) for line in lines) > 1:
        whole = growth.kv_held if count == "held" else growth.kv_moved
        lines.insert(0, ("whole", t("all of the cache"), whole, palette.KV, "dash"))
    state = growth.state_held if count == "held" else growth.state_moved
    lines.append(("state", names["state"], state, palette.STATE, "line"))
    lines.append(("conv", t("of it, convolution state"), parts["conv"], palette.CONV, "line"))
    return [line for line in lines if line[2].any()]


def _dashed(style: str) -> dict[str, str]:
    return {"dash": "dash"} if style == "dash" else {}


def _title(t: Words, count: str) -> str:
    return t("held by one sequence") if count == "held" else t("moved in one step")


def short(t: Words, tokens: float) -> str:
    """A count of tokens as contexts are named: 32K is 32,768."""
    if tokens >= 2**20:
        return f"{t.number(tokens / 2**20)}M"
    return f"{t.number(tokens / 2**10)}K" if tokens >= 2**10 else t.number(tokens)
