"""The lab's own browser components: their files read once, mounted by a function each.

Text that a visitor or a model wrote reaches them as data and is set with textContent, never as HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.components.v2.types import ComponentRenderer

_HERE = Path(__file__).parent
_LEAVING = str(_HERE / "leaving.js")


def component(
    name: str, folder: str | Path, html: str, css: Sequence[str], scripts: Sequence[str]
) -> ComponentRenderer:
    """A component from its files; a folder of another package is given by its whole path."""

    def text(file: str) -> str:
        return (_HERE / folder / file).read_text(encoding="utf-8")

    # isolate_styles would put the chart in a shadow root, where Plotly's own style sheet does not reach.
    return st.components.v2.component(
        name,
        html=text(html),
        css="\n".join(map(text, css)),
        js="\n".join(map(text, (_LEAVING, *scripts))),
        isolate_styles=False,
    )


_live_view = component(
    "roofline_live_view",
    "live_view",
    "view.html",
    ("view.css",),
    ("../figure/plotly.js", "chart.js", "hover.js", "view.js"),
)
_chips = component("roofline_chips", "chips", "chips.html", ("chips.css",), ("chips.js",))
_figure = component("roofline_figure", "figure", "figure.html", ("figure.css",), ("plotly.js", "figure.js"))
_import_run = component("roofline_import_run", "import_run", "import_run.html", ("import_run.css",), ("import_run.js",))


def live_view(data: dict[str, Any], *, key: str, on_end: Callable[[], None]) -> None:
    """The live chart of one run; `on_end` is called before the one rerun that its end causes."""
    _live_view(key=key, data=data, on_done_change=on_end)


def chips(rows: Sequence[dict[str, Any]], *, key: str) -> None:
    """Rows of tokens: each `{"title", "tokens": [[piece, id], ...], "note"}`."""
    _chips(key=key, data={"rows": list(rows)})


def figure(data: dict[str, Any], *, key: str) -> None:
    """A chart that stays in place when its numbers change; see `pages._parts.figures` for its data."""
    _figure(key=key, data=data)


def import_run(data: dict[str, Any], *, key: str, on_import: Callable[[], None]) -> None:
    """A button that takes in a record's file; the id is in session state under `key`, as `imported`."""
    _import_run(key=key, data=data, on_imported_change=on_import)
