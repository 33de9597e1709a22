"""Figures of *Shapes*: time and rate of one matrix over its rows, under the roof that was drawn before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.shapes import ShapePoint
from pages._parts import figures, palette, ridge_words, terms
from pages._parts.figures import entry
from pages._parts.words import Words

HEIGHT = 360


@dataclass(frozen=True)
class Turns:
    """Where the curve turns, in rows: the ridge of the roof, which is `dtype`'s, and the knee that was measured.

    read_bytes: of the matrix, on which the bandwidth in the ridge depends.
    """

    dtype: str
    ridge: float | None
    read_bytes: float
    knee: float | None = None


def time_figure(t: Words, points: Sequence[ShapePoint], turns: Turns) -> dict[str, Any]:
    """Time against rows, both axes logarithmic: a flat start, a knee, a slope."""
    return _figure(
        t,
        points,
        _marks(t, points, turns),
        lambda _point, time_ns: time_ns,
        t("time"),
        t.duration,
        t("Time of the product against its rows, measured and predicted: a flat start, a knee and a slope."),
        is_time=True,
    )


def rate_figure(t: Words, points: Sequence[ShapePoint], turns: Turns) -> dict[str, Any]:
    """FLOP/s against rows: what more rows gain, and where the gain ends."""
    return _figure(
        t,
        points,
        _marks(t, points, turns),
        lambda point, time_ns: point.flops / time_ns * 1e9,
        t("rate"),
        t.rate,
        t("Rate of the product against its rows, measured and predicted."),
        is_time=False,
    )


def _figure(
    t: Words,
    points: Sequence[ShapePoint],
    marks: list[Any],
    value: Callable[[ShapePoint, float], float],
    title: str,
    write: Callable[[float], str],
    alt: str,
    *,
    is_time: bool,
) -> dict[str, Any]:
    """`value` of each point and a time, measured and by the roof; `is_time` where the roof is a floor."""
    roof = [value(point, point.predicted_ns.measured_roof) for point in points]
    known = [(point, value(point, point.time_ns)) for point in points if point.time_ns is not None]
    every = roof + [each for _, each in known]
    layout = {
        "xaxis": _rows_axis(t, points),
        "yaxis": figures.log_axis(title, min(every) / 1.5, max(every) * 1.7, write, most=6),
    }
    data = [_roof(t, points, roof), *_measured(t, known)]
    legend = _legend(t, [point for point, _ in known], is_time=is_time)
    return figures.component_data(t, data, figures.marked(layout, marks), legend, height=HEIGHT, alt=alt)


def _rows_axis(t: Words, points: Sequence[ShapePoint]) -> dict[str, Any]:
    rows = [float(point.rows) for point in points]
    shown = rows if max(rows) > min(rows) else [*rows, 2 * max(rows)]
    axis = figures.power_axis(t("rows multiplied at once"), shown, lambda each: t.number(each, 0), most=12)
    low, high = axis["range"]
    return axis | {"range": [low - 0.05, high + 0.05]}


def _roof(t: Words, points: Sequence[ShapePoint], values: list[float]) -> dict[str, Any]:
    told = [
        figures.hover(
            [t("{rows} rows, predicted", rows=t.number(point.rows)), t.duration(point.predicted_ns.measured_roof)]
        )
        for point in points
    ]
    return figures.curve([point.rows for point in points], values, "roof", palette.FLOOR, told, dash="dot", width=2)


def _measured(t: Words, known: Sequence[tuple[ShapePoint, float]]) -> list[dict[str, Any]]:
    if not known:
        return []
    points = [point for point, _ in known]
    colours = [palette.DECODE if point.rows == 1 else palette.PREFILL for point in points]
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [point.rows for point in points],
            "y": [value for _, value in known],
            "legendgroup": "measured",
            "line": {"color": palette.PREFILL, "width": 2},
            "marker": {
                "size": 9,
                "color": colours,
                "symbol": ["circle" if point.rows == 1 else "diamond" for point in points],
                "line": figures.rings([point.flags for point in points]),
            },
            "text": [_told(t, point) for point in points],
            "hovertemplate": "%{text}<extra></extra>",
        }
    ]


def _told(t: Words, point: ShapePoint) -> str:
    assert point.time_ns is not None
    return figures.hover(
        [
            t("{rows} rows, measured", rows=t.number(point.rows)),
            f"{t.duration(point.time_ns)} ± {t.percent(point.spread)}",
            t.rate(point.flops_per_s or 0.0),
            t("predicted {time}", time=t.duration(point.predicted_ns.measured_roof)),
        ]
    )


def _marks(t: Words, points: Sequence[ShapePoint], turns: Turns) -> list[Any]:
    low, high = points[0].rows, points[-1].rows
    marks, middle, ridge, knee = [], math.sqrt(low * high), turns.ridge, turns.knee
    if ridge is not None and low <= ridge <= high:
        name = ridge_words.mark_rows(t, ridge, turns.dtype, turns.read_bytes)
        marks.append(figures.at_x(ridge, name, palette.FLOOR, right=ridge < middle))
    if knee is not None and low <= knee <= high:
        name = t("knee {value}", value=t.number(knee))
        marks.append(figures.at_x(knee, name, figures.TEXT, row=1, right=knee < middle))
    return marks


def _legend(t: Words, known: Sequence[ShapePoint], *, is_time: bool) -> figures.Legend:
    found = [figures.roof_entry(t, is_time=is_time)]
    if known:
        found.insert(0, entry("measured", t("measured"), "dot", palette.PREFILL, t(terms.MEASURED_ROWS)))
    if any(point.flags for point in known):
        found.append(figures.ring_entry(t))
    return found
