"""Figures of *Batch and memory*: throughput, intensity and memory over the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.growth import BatchGrowth, Room
from engine.measured_points import MeasuredPoint
from pages._parts import figures, palette, terms
from pages._parts.figures import entry
from pages._parts.roofline_chart import kind_legend, kind_names
from pages._parts.words import Words

HEIGHT = 330


def _axis(t: Words, growth: BatchGrowth) -> dict[str, Any]:
    return figures.power_axis(
        t("batch, sequences"), [float(each) for each in growth.batch], lambda each: t.number(each, 0)
    )


def _wall(t: Words, found: Room, growth: BatchGrowth) -> list[Any]:
    """The vertical line at the largest batch that fits."""
    if not found.most or found.most >= growth.batch[-1]:
        return []
    return [figures.at_x(found.most, t("memory ends at {most}", most=t.number(found.most)), palette.FLOOR)]


def _chosen(t: Words, batch: int) -> list[Any]:
    return [figures.at_x(batch, f"B = {t.number(batch)}", figures.TEXT, row=1)]


def throughput(
    t: Words, growth: BatchGrowth, found: Room, batch: int, measured: Sequence[MeasuredPoint]
) -> dict[str, Any]:
    """Tokens a second over the batch: solid while memory lasts, dotted beyond."""
    rates = growth.steps.tokens_per_s
    told = [
        figures.hover(
            [
                t("batch {batch}", batch=t.number(each)),
                t("{rate} tokens/s", rate=t.number(rate)),
                t.duration(time * 1e9),
            ]
        )
        for each, rate, time in zip(growth.batch, rates, growth.steps.time_s, strict=True)
    ]
    data = _until_wall(growth, [float(rate) for rate in rates], told, found)
    data += [
        figures.point(
            float(each.batch),
            each.tokens_per_s,
            "measured",
            figures.hover(
                [
                    t("measured: {phase}", phase=t("decode")),
                    each.device[:60],
                    t("{rate} tokens/s", rate=t.number(each.tokens_per_s)),
                ]
            ),
            size=12,
            color="rgba(0,0,0,0)",
            line={"width": 2.5, "color": palette.DECODE},
        )
        for each in measured
        if each.phase == "decode"
    ]
    every = [float(rate) for rate in rates] + [each.tokens_per_s for each in measured if each.phase == "decode"]
    layout = {
        "xaxis": _axis(t, growth),
        "yaxis": figures.log_axis(
            t("tokens/s, all sequences"), min(every) / 1.6, max(every) * 1.6, lambda each: t.number(each, 0)
        ),
    }
    legend = [entry("decode", t("at best"), "line", palette.DECODE, t(terms.ROOFLINE)), _beyond(t)]
    if measured:
        legend.append(entry("measured", t("measured"), "open", palette.DECODE, t(terms.MEASURED)))
    return figures.component_data(
        t,
        data,
        figures.marked(layout, [*_wall(t, found, growth), *_chosen(t, batch)]),
        legend,
        height=HEIGHT,
        alt=t("Tokens a second against the batch, with the batch at which memory ends."),
    )


def _beyond(t: Words) -> dict[str, str]:
    return entry("beyond", t("does not fit"), "dots", palette.DECODE, t(terms.LARGEST_BATCH))


def _until_wall(growth: BatchGrowth, ys: list[float], told: list[str], found: Room) -> list[dict[str, Any]]:
    batches = [float(each) for each in growth.batch]
    inside = sum(1 for each in batches if found.most is None or each <= found.most)
    fits = figures.curve(batches[:inside], ys[:inside], "decode", palette.DECODE, told[:inside])
    start = max(0, inside - 1)
    return [
        fits,
        figures.curve(batches[start:], ys[start:], "beyond", palette.DECODE, told[start:], dash="dot", width=1.8),
    ]


def intensity(
    t: Words, growth: BatchGrowth, found: Room, batch: int, ridge: float, limit: float, *, ridge_name: str
) -> dict[str, Any]:
    """FLOPs per byte over the batch, beside its limit, the ridge, and the weights alone."""
    ys = [float(each) for each in growth.steps.intensity]
    batches = [float(each) for each in growth.batch]
    told = [
        figures.hover([t("batch {batch}", batch=t.number(each)), t("{value} FLOP/byte", value=t.number(y))])
        for each, y in zip(batches, ys, strict=True)
    ]
    data = _until_wall(growth, ys, told, found)
    marks = [*_wall(t, found, growth), *_chosen(t, batch)]
    marks.append(figures.at_y(ridge, ridge_name, palette.FLOOR, log=True, right=True))
    if limit != float("inf"):
        marks.append(
            figures.at_y(
                limit,
                t("limit of decode {value}", value=t.number(limit, 0)),
                palette.DECODE,
                log=True,
                below=limit < ridge,
            )
        )
    high = max([*ys, ridge, limit if limit != float("inf") else 0]) * 2
    layout = {
        "xaxis": _axis(t, growth),
        "yaxis": figures.log_axis(t("FLOP/byte"), min(ys) / 1.6, high, lambda each: t.number(each, 0)),
    }
    legend = [entry("decode", t("decode step"), "line", palette.DECODE, t(terms.INTENSITY_LIMIT)), _beyond(t)]
    return figures.component_data(
        t,
        data,
        figures.marked(layout, marks),
        legend,
        height=HEIGHT,
        alt=t("Arithmetic intensity of a decode step against the batch, with its limit and the ridge."),
    )


def memory(t: Words, growth: BatchGrowth, found: Room, batch: int) -> dict[str, Any]:
    """What is held, kind by kind, over the batch, and the device's memory as a wall."""
    kinds = {"weights": growth.weights, "kv": growth.kv, "state": growth.state, "conv": growth.conv}
    shown = [kind for kind, held in kinds.items() if held.any()]
    names = kind_names(t)
    batches = [float(each) for each in growth.batch]
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "stackgroup": "held",
            "x": batches,
            "y": [float(each) / 1e9 for each in kinds[kind]],
            "legendgroup": kind,
            "line": {"width": 0.5, "color": figures.KIND_COLOURS[kind]},
            "fillcolor": figures.KIND_COLOURS[kind],
            "text": [
                figures.hover([names[kind], t("batch {batch}", batch=t.number(each)), t.size(held)])
                for each, held in zip(batches, kinds[kind], strict=True)
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }
        for kind in shown
    ]
    marks = [*_wall(t, found, growth), *_chosen(t, batch)]
    top = float(growth.steps.resident_bytes[-1]) / 1e9
    if found.memory_bytes:
        marks.append(
            figures.at_y(
                found.memory_bytes / 1e9, t("memory {size}", size=t.size(found.memory_bytes)), palette.FLOOR, log=False
            )
        )
        top = min(top, 2.2 * max(found.memory_bytes, found.held.weights) / 1e9)
    layout = {
        "xaxis": _axis(t, growth),
        "yaxis": {"title": {"text": t("held, GB"), "standoff": 8, "font": {"size": 12}}, "range": [0, top * 1.06]},
    }
    return figures.component_data(
        t,
        data,
        figures.marked(layout, marks),
        kind_legend(t, shown),
        height=HEIGHT,
        alt=t("Memory held against the batch: weights, KV cache, recurrent state, and the device's memory."),
    )
