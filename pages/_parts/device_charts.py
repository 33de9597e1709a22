"""Figures of *Devices*: both estimates for every device, and published measurements against their floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.measured_points import MeasuredPoint
from engine.measurements import Judged
from engine.two_estimates import Estimate
from pages._parts import figures, palette, terms
from pages._parts.figures import entry
from pages._parts.words import Words


def both(
    t: Words,
    estimates: Sequence[Estimate],
    before: Estimate,
    after: Estimate,
    measured: Sequence[MeasuredPoint],
    *,
    unit: str,
) -> dict[str, Any]:
    """A point a device: bytes alone to the right, compute alone upwards. Above the diagonal bytes are the limit.

    What was measured is one rate and not two, so it lies on the diagonal: at most as far as either estimate.
    """
    xs = [each.memory_tokens_per_s for each in estimates]
    ys = [each.compute_tokens_per_s for each in estimates]
    reached = [each.tokens_per_s for each in measured]
    low, high = min(*xs, *ys, *reached) / 2, max(*xs, *ys) * 2
    data = [
        figures.curve([low, high], [low, high], "diagonal", palette.FLOOR, dash="dash", width=1.6),
        *(_cloud(t, [each for each in estimates if (each.room_bytes or 0) >= 0], "fits", 0.75, "circle", unit),),
        *(_cloud(t, [each for each in estimates if (each.room_bytes or 0) < 0], "over", 0.75, "circle-open", unit),),
    ]
    chosen = [(each, colour) for each, colour in ((before, figures.TEXT), (after, palette.DECODE))]
    data += [
        figures.point(
            each.memory_tokens_per_s,
            each.compute_tokens_per_s,
            "chosen",
            _told(t, each, unit),
            size=15,
            color=colour,
            symbol="diamond",
            line={"width": 1.5, "color": "@background"},
        )
        for each, colour in chosen
    ]
    data += [_measured(t, each, unit) for each in measured]
    layout: dict[str, Any] = {
        "xaxis": figures.log_axis(t("bytes alone, {unit}", unit=unit), low, high, lambda each: _rate(t, each)),
        "yaxis": figures.log_axis(
            t("compute alone, {unit}", unit=unit), min(*ys, *reached) / 2, max(ys) * 2, lambda each: _rate(t, each)
        ),
    }
    layout["shapes"] = [
        {
            "type": "line",
            "x0": before.memory_tokens_per_s,
            "y0": before.compute_tokens_per_s,
            "x1": after.memory_tokens_per_s,
            "y1": after.compute_tokens_per_s,
            "line": {"color": palette.DECODE, "width": 1.6},
            "layer": "below",
        }
    ]
    legend = [
        entry(
            "chosen",
            t("the two cards"),
            "dot",
            palette.DECODE,
            t("The card before and the card after, joined by a line."),
        ),
        entry(
            "fits",
            t("device, model fits"),
            "small",
            palette.WEIGHTS,
            t("A listed device whose memory holds the model and its caches."),
        ),
        entry(
            "over",
            t("device, too small"),
            "open",
            palette.WEIGHTS,
            t("A listed device whose memory does not hold the model: it would need several."),
        ),
        entry(
            "diagonal",
            t("both equal"),
            "dash",
            palette.FLOOR,
            t("Above this line bytes are the limit, below it arithmetic is."),
        ),
    ]
    if measured:
        legend.append(entry("measured", t("measured"), "open", palette.DECODE, t(terms.MEASURED)))
    return figures.component_data(
        t,
        data,
        layout,
        legend,
        height=430,
        alt=t("Two estimates for every device: tokens a second by bytes alone and by compute alone."),
    )


def _measured(t: Words, each: MeasuredPoint, unit: str) -> dict[str, Any]:
    rate = each.tokens_per_s
    head = t("measured: {phase}", phase=t(each.phase))
    told = figures.hover([head, each.device[:60], f"{t.number(rate)} {unit}", t("run {id}", id=each.run_id)])
    style = {"size": 12, "color": "rgba(0,0,0,0)", "line": {"width": 2.5, "color": palette.DECODE}}
    return figures.point(rate, rate, "measured", told, **style)


def _rate(t: Words, value: float) -> str:
    return t.number(value)


def _cloud(t: Words, some: Sequence[Estimate], group: str, opacity: float, symbol: str, unit: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "legendgroup": group,
        "x": [each.memory_tokens_per_s for each in some],
        "y": [each.compute_tokens_per_s for each in some],
        "text": [_told(t, each, unit) for each in some],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {"size": 8, "color": palette.WEIGHTS, "symbol": symbol, "opacity": opacity},
    }


def _told(t: Words, each: Estimate, unit: str) -> str:
    name = t("This machine") if each.device.id == "this-machine" else each.device.name
    return figures.hover(
        [
            name,
            t("compute alone: {rate} {unit}", rate=t.number(each.compute_tokens_per_s), unit=unit),
            t("bytes alone: {rate} {unit}", rate=t.number(each.memory_tokens_per_s), unit=unit),
            t("ridge {value}", value=t.number(each.ridge_flop_per_byte, 0)),
        ]
    )


def published(t: Words, rows: Sequence[tuple[str, str, Judged]]) -> dict[str, Any]:
    """A bar a published speed: the share of the roof it reached.

    Args:
        rows: model, device, and the row beside its floor.
    """
    ordered = sorted(rows, key=lambda row: row[2].share_of_roof)
    names = [f"{model.split('/')[-1]} · {device} · {judged.row.weights}" for model, device, judged in ordered]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "legendgroup": "published",
            "y": list(range(len(names))),
            "x": [100 * judged.share_of_roof for _, _, judged in ordered],
            "marker": {"color": palette.DECODE, "opacity": 0.4},
            "width": 0.72,
            "text": names,
            "textposition": "inside",
            "insidetextanchor": "start",
            "textfont": {"color": "@text", "size": 11},
            "constraintext": "none",
            "cliponaxis": False,
            "hovertext": [
                figures.hover(
                    [
                        name,
                        judged.row.condition,
                        t(
                            "measured {time}, floor {floor}",
                            time=t.duration(judged.time_s * 1e9),
                            floor=t.duration(judged.floor_s * 1e9),
                        ),
                        t.percent(judged.share_of_roof, 0),
                    ]
                )
                for name, (_, _, judged) in zip(names, ordered, strict=True)
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
    ]
    layout = {
        "margin": {"l": 4, "r": 12, "t": 8, "b": 8},
        "yaxis": {"visible": False},
        "xaxis": {"range": [0, 104], "title": {"text": t("share of the roof, %"), "standoff": 6, "font": {"size": 12}}},
        "shapes": [
            {
                "type": "line",
                "x0": 100,
                "x1": 100,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": palette.FLOOR, "width": 1.8, "dash": "dash"},
            }
        ],
    }
    legend = [
        entry("published", t("published"), "box", palette.DECODE, t(terms.SHARE_OF_ROOF)),
        entry("floor", t("datasheet floor"), "dash", palette.FLOOR, t(terms.FLOOR)),
    ]
    return figures.component_data(
        t,
        data,
        layout,
        legend,
        height=60 + 27 * len(names),
        alt=t("Published speeds as a share of what the data sheet allows; none passes 100 %."),
    )
