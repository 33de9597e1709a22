"""What the charts of the prediction pages are made of: plain data for `components.figure`. No Streamlit here.

Text and grid carry the theme's colours by name (@text, @grid, @background); all others mean what palette.py says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pages._parts import api, palette, session, terms
from pages._parts.words import Words

TEXT = "@text"
KIND_COLOURS = {
    "weights": palette.WEIGHTS,
    "experts": palette.EXPERTS,
    "kv": palette.KV,
    "window": palette.WINDOW,
    "latent": palette.LATENT,
    "state": palette.STATE,
    "conv": palette.CONV,
    "logits": palette.LOGITS,
}
_SMALL = {"size": 11}

Legend = list[dict[str, str]]


def entry(group: str, name: str, mark: str, colour: str, about: str) -> dict[str, str]:
    """One item of a legend; a press on it hides what belongs to its group."""
    return {"group": group, "name": name, "mark": mark, "colour": colour, "about": about}


def component_data(
    t: Words, data: list[dict[str, Any]], layout: dict[str, Any], legend: Legend, *, alt: str, height: int
) -> dict[str, Any]:
    """The component's data."""
    base = {"margin": {"l": 8, "r": 12, "t": 26, "b": 8}, "hovermode": "closest", "uirevision": alt}
    return {
        "figure": {"data": data, "layout": base | layout},
        "legend": legend,
        "alt": alt,
        "height": height,
        "plotly": session.base_path() + api.PLOTLY_PATH,
        "no_chart": t("The chart could not be loaded; reload the page."),
    }


def log_axis(title: str, low: float, high: float, write: Callable[[float], str], *, most: int = 8) -> dict[str, Any]:
    """A logarithmic axis written by `write`: ticks at powers of ten, at 1, 2 and 5 where few powers are in sight."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / most))
    between = (1, 2, 5) if math.log10(high / low) < 2 else (1,)
    ticks = [factor * 10.0**power for power in range(first, last + 1, every) for factor in between]
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [write(tick) for tick in ticks],
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
    }


def power_axis(title: str, values: Sequence[float], write: Callable[[float], str], *, most: int = 9) -> dict[str, Any]:
    """A logarithmic axis with a tick at powers of two, for counts that come in them."""
    low, high = min(values), max(values)
    first, last = math.ceil(math.log2(low)), math.floor(math.log2(high))
    every = max(1, math.ceil((last - first + 1) / most))
    ticks = [2.0**power for power in range(first, last + 1, every)]
    return {
        "type": "log",
        "range": [math.log10(low * 0.97), math.log10(high * 1.03)],
        "tickvals": ticks,
        "ticktext": [write(tick) for tick in ticks],
        "title": {"text": title, "standoff": 8, "font": {"size": 12}},
    }


def at_x(
    x: float, text: str, colour: str, *, row: int = 0, group: str = "", right: bool | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A vertical dotted line on a logarithmic axis and its name, in the `row`-th line of names from the top.

    right: whether the name stands to the right of its line or to its left; None takes the middle in the first row.
    """
    line = {
        "type": "line",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "name": group,
        "line": {"dash": "dot", "width": 1.4, "color": colour},
    }
    # Plotly wants an annotation's place on a logarithmic axis as its logarithm.
    name = {
        "x": math.log10(x),
        "y": 1,
        "yref": "paper",
        "yanchor": "bottom" if row == 0 else "top",
        "yshift": -16 * max(0, row - 1),
        "xanchor": "center" if row == 0 and right is None else "right" if right is False else "left",
        "text": text,
        "showarrow": False,
        "font": _SMALL,
        "bgcolor": "@background" if row else "rgba(0,0,0,0)",
    }
    return line, name


def at_y(
    y: float, text: str, colour: str, *, log: bool, group: str = "", below: bool = False, right: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A horizontal line and its name at the left, or at the right."""
    line = {
        "type": "line",
        "x0": 0,
        "x1": 1,
        "xref": "paper",
        "y0": y,
        "y1": y,
        "name": group,
        "line": {"dash": "dash", "width": 1.5, "color": colour},
    }
    name = {
        "x": 0.99 if right else 0.01,
        "xref": "paper",
        "xanchor": "right" if right else "left",
        "y": math.log10(y) if log else y,
        "yanchor": "top" if below else "bottom",
        "text": text,
        "showarrow": False,
        "font": _SMALL,
    }
    return line, name


def marked(layout: dict[str, Any], marks: Iterable[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """A layout with lines and their names."""
    pairs = list(marks)
    return layout | {"shapes": [line for line, _ in pairs], "annotations": [name for _, name in pairs]}


def hover(rows: Iterable[str]) -> str:
    """Lines of a hover box, the first in bold."""
    head, *rest = rows
    return "<br>".join([f"<b>{head}</b>", *rest])


def point(x: float, y: float, group: str, told: str, **marker: Any) -> dict[str, Any]:
    """One marked point with what it says."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [x],
        "y": [y],
        "legendgroup": group,
        "text": [told],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": marker,
    }


def rings(flagged: Sequence[Sequence[str]]) -> dict[str, Any]:
    """A marker's outline: red around each point that has a flag."""
    return {"color": palette.FLOOR, "width": [2.5 if flags else 0 for flags in flagged]}


def roof_entry(t: Words, *, is_time: bool) -> dict[str, str]:
    """The legend's word for the measured roof; on an axis of time it lies below, and says so."""
    if is_time:
        return entry("roof", t("measured roof, least time"), "dots", palette.FLOOR, t(terms.ROOF_OF_TIME))
    return entry("roof", t("measured roof"), "dots", palette.FLOOR, t(terms.ROOF))


def ring_entry(t: Words) -> dict[str, str]:
    """The legend's word for such a ring."""
    return entry("", t("faster than it can be"), "open", palette.FLOOR, t(terms.FLAGGED))


def curve(
    x: Iterable[float], y: Iterable[float], group: str, colour: str, told: Sequence[str] | None = None, **style: Any
) -> dict[str, Any]:
    """A line; `told` says what each of its points says."""
    extra: dict[str, Any] = (
        {"hoverinfo": "skip"} if told is None else {"text": list(told), "hovertemplate": "%{text}<extra></extra>"}
    )
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [float(each) for each in x],
        "y": [float(each) for each in y],
        "legendgroup": group,
        "line": {"color": colour, "width": 2.2, **style},
        **extra,
    }
