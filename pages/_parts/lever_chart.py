"""Charts of the levers: those of the run itself, and apart from them other devices and models with a base of their own.

Gains lie on a logarithmic scale, because a device may be a hundred times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.lever_record import PULLED, Lever, LeversRecord
from pages._parts import components, figures, palette, terms
from pages._parts.figures import entry
from pages._parts.lever_results import Result
from pages._parts.words import Words


def own(t: Words, forecast: LeversRecord, results: dict[str, Result], *, unsure: bool) -> None:
    """What this run would gain, predicted and measured: times the tokens a second it had.

    unsure: each predicted bar says that it is; a measured one says it of itself.
    """
    shown = [lever for lever in reversed(forecast.levers) if lever.kind in PULLED]
    answers = [results.get(lever.name) for lever in shown]
    found = [None if answer is None else answer.gain for answer in answers]
    legend = [entry("predicted", t("predicted"), "frame", figures.TEXT, t(terms.FORETOLD))]
    if any(gain is not None for gain in found):
        legend.append(entry("measured", t("measured"), "box", palette.DECODE, t(terms.MEASURED_STEPS)))
    names = [_of_the_run(t, lever) for lever in shown]
    bars = [
        _bars(
            t,
            names,
            found,
            "measured",
            [answer is not None and answer.disturbed for answer in answers],
            color=palette.DECODE,
        ),
        _bars(t, names, [lever.gain for lever in shown], "predicted", [unsure] * len(shown), **_outline(figures.TEXT)),
    ]
    gains = [lever.gain for lever in shown] + [gain for gain in found if gain is not None]
    _draw(t, bars, gains, legend, len(shown), t("the run as it was"),
          t("Each lever's gain in tokens a second, predicted and measured."), "levers_figure")  # fmt: skip


def replaced(t: Words, forecast: LeversRecord, *, unsure: bool) -> None:
    """What another device or model would be worth against the one it stands in for: predicted only."""
    shown = [lever for lever in reversed(forecast.levers) if lever.kind not in PULLED]
    names = [_in_place_of(t, lever) for lever in shown]
    legend = [
        entry("replaced", t("predicted, against what it replaces"), "frame", palette.WEIGHTS, t(terms.FORETOLD)),
    ]
    gains = [lever.gain for lever in shown]
    bars = [_bars(t, names, gains, "replaced", [unsure] * len(gains), **_outline(palette.WEIGHTS))]
    _draw(t, bars, gains, legend, len(shown), t("what it replaces"),
          t("What another device or another model is predicted to give against the one it replaces."),
          "replaced_figure")  # fmt: skip


def _outline(colour: str) -> dict[str, Any]:
    return {"color": "rgba(0,0,0,0)", "line": {"color": colour, "width": 1.6}}


def _bars(
    t: Words, names: Sequence[str], values: Sequence[float | None], group: str, unsure: Sequence[bool], **marker: Any
) -> dict[str, Any]:
    doubt = t("unsure")
    marks = [f" ({doubt})" if each else "" for each in unsure]
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(names),
        "x": list(values),
        "legendgroup": group,
        "marker": marker,
        "text": [
            None if value is None else f"× {t.number(value)}{mark}" for value, mark in zip(values, marks, strict=True)
        ],
        "textposition": "outside",
        "constraintext": "none",
        "textfont": {"size": 11},
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _draw(
    t: Words,
    bars: list[dict[str, Any]],
    gains: Sequence[float],
    legend: figures.Legend,
    count: int,
    one: str,
    alt: str,
    key: str,
) -> None:
    every = [1.0, *gains]
    layout = {
        "barmode": "group",
        "bargap": 0.25,
        "xaxis": figures.log_axis(
            t("times the tokens a second"), min(every) / 1.4, max(every) * 2.2, lambda x: f"× {t.number(x)}"
        ),
        "yaxis": {"tickfont": {"size": 11}},
    }
    layout = figures.marked(layout, [figures.at_x(1.0, one, figures.TEXT)])
    components.figure(figures.component_data(t, bars, layout, legend, height=70 + 38 * count, alt=alt), key=key)


def _of_the_run(t: Words, lever: Lever) -> str:
    names = {
        "weights": t("weights {format}", format=lever.name.removeprefix("weights-")),
        "kv": t("KV {format}", format=lever.name.removeprefix("kv-")),
        "batch": t("batch {batch}", batch=lever.name.removeprefix("batch-")),
        "context": t("half the prompt"),
        "lookup": t("drafts"),
    }
    return names[lever.kind]


def _in_place_of(t: Words, lever: Lever) -> str:
    """Both sides of the comparison by name."""
    said = {name: str(value).rpartition("/")[2] for name, value in lever.what.params.items()}
    if lever.kind == "device":
        return t("{device} for this machine", **said)
    return t("{model} for {dense}", model=said["model"], dense=said["dense"])
