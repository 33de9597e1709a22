"""A product of matrices drawn to scale: the rows that come in, the weights, the rows that go out."""

from __future__ import annotations

from typing import Any

from pages._parts import figures, palette
from pages._parts.words import Words

HEIGHT = 120
THINNEST = 1 / 400
"""A side thinner than this share of the drawing's width is drawn this thick, or nobody would see it."""


def product(t: Words, *, rows: int, k: int, n: int, colour: str) -> dict[str, Any]:
    """[rows, k] x [k, n] = [rows, n], every side in one scale; numbers along the sides are the true ones."""
    gap = 0.09 * (k + 2 * n)
    width = k + 2 * n + 2 * gap
    least = THINNEST * width
    thick, narrow = max(rows, least), max(k, least)
    weights, out = narrow + gap, narrow + n + 2 * gap
    top = max(narrow, thick) / 2
    shapes = [
        _block(0, narrow, thick, colour),
        _block(weights, n, max(k, least), palette.WEIGHTS),
        _block(out, n, thick, colour),
    ]
    notes = [
        _note(narrow / 2, thick / 2, f"{t.number(rows)} × {t.number(k)}"),
        _note(weights + n / 2, max(k, least) / 2, f"{t.number(k)} × {t.number(n)}"),
        _note(out + n / 2, thick / 2, f"{t.number(rows)} × {t.number(n)}"),
        _note(weights - gap / 2, 0, "×", middle=True),
        _note(out - gap / 2, 0, "=", middle=True),
    ]
    hidden = {"visible": False, "fixedrange": True}
    layout = {
        "xaxis": hidden | {"range": [-0.02 * width, width * 1.02]},
        "yaxis": hidden | {"range": [-top * 1.1, top * 1.1], "scaleanchor": "x", "constrain": "domain"},
        "margin": {"l": 0, "r": 0, "t": 18, "b": 4},
        "shapes": shapes,
        "annotations": notes,
    }
    said = t(
        "{rows} rows of {k} numbers times a matrix of {k} by {n}.", rows=t.number(rows), k=t.number(k), n=t.number(n)
    )
    # Without a trace Plotly draws no axes, and without axes no shapes.
    anchor = {"type": "scatter", "x": [0, width], "y": [0, 0], "mode": "markers", "opacity": 0, "hoverinfo": "skip"}
    return figures.component_data(t, [anchor], layout, [], alt=said, height=HEIGHT)


def _block(x: float, width: float, height: float, colour: str) -> dict[str, Any]:
    sides = {"x0": x, "x1": x + width, "y0": -height / 2, "y1": height / 2}
    return {"type": "rect", **sides, "fillcolor": colour, "line": {"width": 1, "color": colour}}


def _note(x: float, above: float, text: str, *, middle: bool = False) -> dict[str, Any]:
    place = {"yanchor": "middle" if middle else "bottom", "yshift": 0 if middle else 2}
    return {"x": x, "y": above, "text": text, "showarrow": False, "font": {"size": 12}, **place}
