"""How the tests of the prediction pages read what AppTest rendered: words, numbers, and the data of the charts."""

from __future__ import annotations

import json
from typing import Any

from streamlit.testing.v1 import AppTest


def said(test: AppTest) -> str:
    """Everything the page says in words, without the backslashes that guard them from Markdown."""
    kinds = ("title", "subheader", "markdown", "text", "caption", "error", "info", "warning", "code")
    return "\n".join(str(element.value).replace("\\", "") for kind in kinds for element in test.get(kind))


def metrics(test: AppTest) -> dict[str, tuple[str, str]]:
    """Label -> (value, second line)."""
    return {metric.label: (metric.value, metric.delta) for metric in test.metric}


def figure(test: AppTest, key: str) -> dict[str, Any]:
    """The data that one chart's component was given."""
    [found] = [each.proto for each in test.get("bidi_component") if each.proto.id.endswith(f"-{key}")]
    return dict(json.loads(found.json))


def traces(test: AppTest, key: str, group: str) -> list[dict[str, Any]]:
    """The traces of one kind on a chart."""
    return [trace for trace in figure(test, key)["figure"]["data"] if trace.get("legendgroup") == group]


def at(test: AppTest, key: str, group: str) -> tuple[float, float]:
    """Where the one point of a kind lies."""
    [trace] = traces(test, key, group)
    return trace["x"][0], trace["y"][0]


def press(test: AppTest, key: str) -> AppTest:
    """Press a button by its key."""
    return test.button(key=key).click().run()


def link(test: AppTest) -> str:
    """The link to this view, as shown to copy."""
    return str(test.code[-1].value)
