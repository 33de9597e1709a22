"""Figures of *This machine*: ceilings in, figure out. No Streamlit here; colours mean what palette.py says.

Text and grid carry no colour of their own: Streamlit's theme fills them in, light or dark. A figure is
built in one go from plain dicts; adding its parts one by one costs Plotly five times as long.
"""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from engine import ridge
from engine.ceilings import BandwidthPoint, Ceilings, LinearPoint
from pages._parts import palette, ridge_words
from pages._parts.words import Words

CONFIG = {
    "displaylogo": False,
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
}
# A matrix is weights, which are grey; no other colour of the palette means one. A model rarely has more than six.
_HUES = (palette.WEIGHTS, *palette.FREE, *palette.MORE_FREE)
_LINES = tuple((colour, dash) for dash in ("solid", "dash", "dot") for colour in _HUES)
_SMALL = {"size": 11}
WIDEST = 1.0
"""A relative spread that is not drawn: the bar would go over all of the chart. The point is drawn hollow instead."""


def bandwidth_figure(t: Words, ceilings: Ceilings) -> go.Figure:
    """Read bandwidth against the size of what is read, with its spread; where caches end is marked."""
    points = ceilings.bandwidth
    drawn = [point.spread if point.spread < WIDEST else 0.0 for point in points]
    sizes = [point.working_set_bytes for point in points]
    rates = [point.bytes_per_s / 1e9 for point in points]
    curve = {
        "type": "scatter", "mode": "lines+markers", "x": sizes, "y": rates,
        "line": {"color": palette.DECODE, "width": 2.5},
        "marker": {"size": 7, "symbol": ["circle" if point.spread < WIDEST else "circle-open" for point in points]},
        "error_y": {
            "array": [rate * spread for rate, spread in zip(rates, drawn, strict=True)], "thickness": 1,
        },
        "customdata": [_bandwidth_hover(t, point) for point in points], "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip
    caches = sorted(ceilings.device.cache_bytes.items(), key=lambda item: item[1])
    marks = [
        _Mark(size, f"{level.capitalize()} {t.binary_size(size)}", palette.WEIGHTS)
        for level, size in caches
        if sizes[0] <= size <= sizes[-1]
    ]
    ticks = [4**k * 2**10 for k in range(2, 12) if sizes[0] / 2 <= 4**k * 2**10 <= sizes[-1] * 2]
    x = {"title": t("bytes read over and over"), "tickvals": ticks, "ticktext": [t.binary_size(tick) for tick in ticks]}
    return _figure([curve], marks, x, {"title": "GB/s", "range": [0, max(rates) * 1.18]})


def _bandwidth_hover(t: Words, point: BandwidthPoint) -> str:
    head = (
        f"<b>{t.binary_size(point.working_set_bytes)}: {t.bandwidth(point.bytes_per_s)}</b> ± {t.percent(point.spread)}"
    )
    kernels = sorted(point.by_kernel.items(), key=lambda item: -item[1])
    told = [head, *(f"{name}: {t.bandwidth(rate)}" for name, rate in kernels)]
    if point.spread >= WIDEST:
        told.append(t("spread too wide to draw"))
    return "<br>".join(told)


def rows_figure(t: Words, points: list[LinearPoint], ceilings: Ceilings) -> go.Figure:
    """Rate of a multiplication against its rows, one curve a matrix, under the roof: a slope, a knee, a plateau.

    Args:
        points: of one dtype and one model, so that one roof holds for all of them.
    """
    shapes = sorted({(point.k, point.n) for point in points}, key=lambda shape: -shape[0] * shape[1])
    most = max(point.rows for point in points)
    curves = [
        _matrix_curve(t, k, n, [point for point in points if (point.k, point.n) == (k, n)], line, most)
        for (k, n), line in zip(shapes, _LINES, strict=False)
    ]
    marks: list[_Mark] = []
    limits = ridge.of_point(points[0], ceilings)
    if limits is not None:
        knee = limits.rows
        corners = sorted({1.0, knee, 2 * knee, float(max(point.rows for point in points))})
        curves.append({
            "type": "scatter", "mode": "lines", "name": t("measured roof"), "hoverinfo": "skip", "x": corners,
            "y": [limits.attainable_flops_per_s(each) / 1e9 for each in corners],
            "line": {"color": palette.FLOOR, "width": 1.6, "dash": "dot"},
        })  # fmt: skip
        named = ridge_words.mark_rows(t, knee, points[0].multiplication, points[0].working_set_bytes)
        marks.append(_Mark(knee, named, palette.FLOOR))
    rows = [2**power for power in range(12)]
    x = {"title": t("rows multiplied at once"), "tickvals": rows, "ticktext": [t.number(each) for each in rows]}
    rates = [point.flops_per_s / 1e9 for point in points]
    return _figure(curves, marks, x, {"type": "log", "title": "GFLOP/s", **_ticks(t, min(rates), max(rates))})


def _ticks(t: Words, low: float, high: float) -> dict[str, Any]:
    """Whole numbers at 1, 2 and 5 of each power of ten: Plotly writes only the leading digit there."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return {"tickvals": ticks, "ticktext": [t.number(tick) for tick in ticks]}


def _matrix_curve(
    t: Words, k: int, n: int, points: list[LinearPoint], line: tuple[str, str], most: int
) -> dict[str, Any]:
    """One matrix; where it ends before `most` rows, its hover says why."""
    points, (colour, dash) = sorted(points, key=lambda point: point.rows), line
    ends = points[-1].rows
    why = ""
    if ends < most:
        said = t(
            "timed up to {rows} rows: steps give it no more (the head scores only the last token of a sequence)",
            rows=t.number(ends),
        )
        why = f"<br>{said}"
    return {
        "type": "scatter", "mode": "lines+markers", "name": f"{k} × {n}",
        "line": {"color": colour, "width": 2, "dash": dash},
        "x": [point.rows for point in points], "y": [point.flops_per_s / 1e9 for point in points],
        "hovertemplate": f"{k} × {n}, %{{x:,}} {t('rows')}: %{{y:,.3~r}} GFLOP/s{why}<extra></extra>",
    }  # fmt: skip


class _Mark:
    """A vertical line on a logarithmic axis, and its name at the top."""

    def __init__(self, x: float, text: str, colour: str) -> None:
        line = {"dash": "dot", "width": 1.3, "color": colour}
        self.shape = {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}
        # Plotly wants an annotation's place on a logarithmic axis as its logarithm.
        at = {"x": math.log10(x), "y": 1, "yref": "paper", "yanchor": "bottom"}
        self.name = {**at, "text": text, "showarrow": False, "font": _SMALL}


def _figure(curves: list[dict[str, Any]], marks: list[_Mark], x: dict[str, Any], y: dict[str, Any]) -> go.Figure:
    layout = {
        "height": 380, "margin": {"l": 10, "r": 10, "t": 30, "b": 10}, "hovermode": "closest",
        "showlegend": len(curves) > 1, "legend": {"orientation": "h", "y": -0.28},
        "xaxis": {"type": "log", **x, "title": {"text": x["title"]}}, "yaxis": {**y, "title": {"text": y["title"]}},
        "shapes": [mark.shape for mark in marks], "annotations": [mark.name for mark in marks],
    }  # fmt: skip
    return go.Figure({"data": curves, "layout": layout})
