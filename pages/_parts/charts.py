"""Figures of *This machine*: ceilings in, figure out. No Streamlit here; colours mean what palette.py says.

Text and grid carry no colour of their own: Streamlit's theme fills them in, light or dark.
"""

from __future__ import annotations

import plotly.graph_objects as go

from engine.ceilings import BandwidthPoint, Ceilings, LinearPoint
from pages._parts import palette
from pages._parts.words import Words

CONFIG = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}
_LINES = ("#2f7de1", "#2e9e5b", "#f08c2e", "#8e44c9", "#3aa6a0", "#c9a3e8", "#8a919c")


def bandwidth_figure(t: Words, ceilings: Ceilings) -> go.Figure:
    """Read bandwidth against the size of what is read, with its spread; where caches end is marked."""
    points = ceilings.bandwidth
    sizes = [point.working_set_bytes for point in points]
    rates = [point.bytes_per_s / 1e9 for point in points]
    figure = go.Figure()
    figure.add_scatter(
        x=sizes, y=rates, mode="lines+markers", name=t("read bandwidth"), line={"color": palette.DECODE, "width": 2.5},
        error_y={"array": [rate * point.spread for rate, point in zip(rates, points, strict=True)], "thickness": 1},
        customdata=[_bandwidth_hover(t, point) for point in points], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    for level, size in sorted(ceilings.device.cache_bytes.items(), key=lambda item: item[1]):
        figure.add_vline(x=size, line={"dash": "dot", "width": 1, "color": palette.WEIGHTS},
                         annotation={"text": f"{level} {t.binary_size(size)}", "font": {"size": 11}})  # fmt: skip
    ticks = [4**k * 2**10 for k in range(2, 12) if sizes[0] / 2 <= 4**k * 2**10 <= sizes[-1] * 2]
    figure.update_xaxes(type="log", title=t("bytes read over and over"), tickvals=ticks,
                        ticktext=[t.binary_size(tick) for tick in ticks])  # fmt: skip
    figure.update_yaxes(title="GB/s", rangemode="tozero")
    return _quiet(figure)


def _bandwidth_hover(t: Words, point: BandwidthPoint) -> str:
    head = f"<b>{t.binary_size(point.working_set_bytes)}: {t.bandwidth(point.bytes_per_s)}</b> ± {t.percent(point.spread)}"
    kernels = sorted(point.by_kernel.items(), key=lambda item: -item[1])
    return "<br>".join([head, *(f"{name}: {t.bandwidth(rate)}" for name, rate in kernels)])


def rows_figure(t: Words, points: list[LinearPoint], peak_flops_per_s: float | None, ridge_rows: float | None) -> go.Figure:
    """Rate of one multiplication against its rows, one curve a matrix: a slope, a knee, a plateau."""
    figure = go.Figure()
    shapes = sorted({(point.k, point.n) for point in points}, key=lambda shape: -shape[0] * shape[1])
    for (k, n), colour in zip(shapes, _LINES, strict=False):
        curve = sorted((point for point in points if (point.k, point.n) == (k, n)), key=lambda point: point.rows)
        figure.add_scatter(
            x=[point.rows for point in curve], y=[point.flops_per_s / 1e9 for point in curve],
            mode="lines+markers", name=f"{k} × {n}", line={"color": colour, "width": 2},
            hovertemplate=f"{k} × {n}, %{{x}} {t('rows')}: %{{y:.3~g}} GFLOP/s<extra></extra>",
        )  # fmt: skip
    if peak_flops_per_s:
        figure.add_hline(y=peak_flops_per_s / 1e9, line={"dash": "dash", "color": palette.FLOOR, "width": 1.6},
                         annotation={"text": t("highest rate measured"), "font": {"size": 11}}, annotation_position="bottom right")  # fmt: skip
    if ridge_rows:
        figure.add_vline(x=ridge_rows, line={"dash": "dot", "color": palette.FLOOR, "width": 1.4},
                         annotation={"text": t("ridge: {rows} rows", rows=t.number(ridge_rows)), "font": {"size": 11}})  # fmt: skip
    figure.update_xaxes(type="log", title=t("rows multiplied at once"), dtick="D1")
    figure.update_yaxes(type="log", title="GFLOP/s", dtick="D2")
    return _quiet(figure)


def _quiet(figure: go.Figure) -> go.Figure:
    figure.update_layout(
        height=380, margin={"l": 10, "r": 10, "t": 30, "b": 10}, legend={"orientation": "h", "y": -0.28}, hovermode="closest"
    )
    return figure
