"""What *Live sweeps* shows of a sweep: time and tokens a second over its axis, in words, and where it can lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from engine import catalogue
from engine.errors import N_
from engine.measured_device import THIS_MACHINE
from engine.random_shapes import PREFIX
from engine.request import DTYPES
from engine.sweeps import Axis, SweepPoint, SweepRecord
from pages._parts import components, experiments, figures, palette, session, terms
from pages._parts.figures import entry
from pages._parts.overlay import AXES
from pages._parts.scene import LIMITS, Scene, link
from pages._parts.words import Words

HEIGHT = 340
_TITLES: dict[Axis, str] = {
    "batch": N_("batch, sequences"),
    "prompt": N_("prompt length, tokens"),
    "context": N_("positions attended"),
}
_BATCH_NAMES = ("model", "device", "batch", "context", "weights", "kv", "state", "preset", "runs")
_ROOFLINE_NAMES = ("model", "device", "prompt", "batch", "context", "weights", "kv", "state", "preset", "runs")


def _colour(axis: Axis) -> str:
    return palette.PREFILL if axis == "prompt" else palette.DECODE


def _tokens(point: SweepPoint) -> int:
    return point.tokens * point.batch


def draw(t: Words, record: SweepRecord) -> None:
    """Both figures."""
    points, axis = record.points, record.request.axis
    components.figure(
        _figure(t, points, axis, t("time of a step"), lambda _point, time_ns: time_ns, t.duration, is_time=True),
        key="sweep_time",
    )
    components.figure(
        _figure(
            t,
            points,
            axis,
            t("tokens/s"),
            lambda point, time_ns: _tokens(point) / time_ns * 1e9,
            lambda rate: t.number(rate, 0 if rate >= 10 else 1),
            is_time=False,
        ),
        key="sweep_rate",
    )


def _figure(
    t: Words,
    points: Sequence[SweepPoint],
    axis: Axis,
    title: str,
    value: Callable[[SweepPoint, float], float],
    write: Callable[[float], str],
    *,
    is_time: bool,
) -> dict[str, Any]:
    """One figure: `value` of a point and a time, measured and by both lines; `is_time` where the roof is a floor."""
    known = [(point, value(point, point.time_ns)) for point in points if point.time_ns is not None]
    roof = [value(point, point.predicted_ns.measured_roof) for point in points]
    expected = [value(point, point.predicted_ns.expected or 1.0) for point in points]
    every = roof + expected + [each for _, each in known]
    xs = [float(point.value) for point in points]
    told = [_told(t, point) for point in points]
    data = [
        figures.curve(xs, roof, "roof", palette.FLOOR, told, dash="dot", width=2),
        figures.curve(xs, expected, "expected", figures.TEXT, told, width=1.8),
        {
            "type": "scatter",
            "mode": "lines+markers",
            "x": [point.value for point, _ in known],
            "y": [each for _, each in known],
            "legendgroup": "measured",
            "line": {"color": _colour(axis), "width": 2},
            "marker": {
                "size": 9,
                "symbol": "diamond" if axis == "prompt" else "circle",
                "line": figures.rings([point.flags for point, _ in known]),
            },
            "text": [_told(t, point) for point, _ in known],
            "hovertemplate": "%{text}<extra></extra>",
        },
    ]
    shown = xs if max(xs) > min(xs) else [*xs, 2 * max(xs)]
    layout = {
        "xaxis": figures.power_axis(t(_TITLES[axis]), shown, lambda each: t.number(each, 0), most=12),
        "yaxis": figures.log_axis(title, min(every) / 1.5, max(every) * 1.6, write, most=6),
    }
    legend = [
        entry("measured", t("measured"), "dot", _colour(axis), t(terms.MEASURED_STEPS)),
        entry("expected", t("expected"), "line", figures.TEXT, t(terms.EXPECTED)),
        figures.roof_entry(t, is_time=is_time),
        *([figures.ring_entry(t)] if any(point.flags for point, _ in known) else []),
    ]
    alt = t("{what} against {axis}: measured, expected and the roof.", what=title, axis=t(AXES[axis]))
    return figures.component_data(t, data, layout, legend, height=HEIGHT, alt=alt)


def _told(t: Words, point: SweepPoint) -> str:
    lines = point.predicted_ns
    rows = [
        t("batch {batch}, {tokens} rows, context {context}",
          batch=t.number(point.batch), tokens=t.number(_tokens(point)), context=t.number(point.context)),
        *([f"{t('measured')}: {t.duration(point.time_ns)} ± {t.percent(point.spread)}"] if point.time_ns else []),
        *([f"{t('expected')}: {t.duration(lines.expected)}"] if lines.expected else []),
        f"{t('roof')}: {t.duration(lines.measured_roof)}",
    ]  # fmt: skip
    return figures.hover(rows)


def verdict(t: Words, record: SweepRecord) -> None:
    """What the sweep says, in its own numbers."""
    known = [(point, point.time_ns) for point in record.points if point.time_ns is not None]
    if len(known) < 2:
        return
    (first, first_ns), (last, last_ns) = known[0], known[-1]
    axis = record.request.axis
    gain = (_tokens(last) / last_ns) / (_tokens(first) / first_ns)
    numbers = {
        "few": t.number(first.value),
        "many": t.number(last.value),
        "times": t.number(last.value / first.value),
        "longer": t.number(last_ns / first_ns),
        "gain": t.number(gain),
        "first": t.duration(first_ns),
        "last": t.duration(last_ns),
    }
    said = {
        "batch": t(
            "From {few} to {many} sequences a step goes from {first} to {last}: {times} times the tokens in {longer} "
            "times the time, so {gain} times the tokens a second.",
            **numbers,
        ),
        "prompt": t(
            "From {few} to {many} tokens the prefill goes from {first} to {last}: {times} times the tokens in {longer} "
            "times the time.",
            **numbers,
        ),
        "context": t(
            "From {few} to {many} positions a token goes from {first} to {last}: the cache it reads grows, the weights "
            "stay the same.",
            **numbers,
        ),
    }[axis]
    off = sorted(abs(ns / p.predicted_ns.expected - 1) for p, ns in known if p.predicted_ns.expected)
    share = t.percent(off[len(off) // 2]) if off else "–"
    missed = t("The expected line was off by {share} in the median.", share=share)
    with st.container(key="verdict"):
        st.text(t.paragraph([said, missed]))


def over(t: Words, record: SweepRecord) -> None:
    """Links to the pages whose predictions this sweep can be laid over, with its own settings."""
    known = record.request.model.removeprefix(PREFIX)
    if known not in catalogue.ids() or record.model is None:
        return
    values = [point.value for point in record.points if point.time_ns is not None] or [1]
    axis, low = record.request.axis, max(1, record.request.context - 1)
    scene = Scene(
        model=known,
        device=THIS_MACHINE,
        weights=record.model.weight_format,
        kv=record.model.kv_format,
        preset="engine",
        runs=record.id,
        batch=min(max(values), int(LIMITS["batch"][1])) if axis == "batch" else record.request.batch,
        context=max(values) if axis == "context" else low,
        prompt=max(values) if axis == "prompt" else 4,
    )
    base = session.address()
    with st.container(horizontal=True):
        for name, page, names in (
            (t("Lay over Roofline"), "roofline", _ROOFLINE_NAMES),
            (t("Lay over Batch and memory"), "batch", _BATCH_NAMES),
        ):
            st.link_button(name, link(base, page, scene, names, t.language), icon=":material/layers:")


def table(t: Words, record: SweepRecord) -> None:
    """Every point in numbers."""
    points = record.points
    columns: dict[str, list[Any]] = {
        t(AXES[record.request.axis]): [point.value for point in points],
        t("measured, ms"): [None if point.time_ns is None else point.time_ns / 1e6 for point in points],
        t("spread, %"): [point.spread * 100 if point.samples > 1 else None for point in points],
        t("expected, ms"): [(point.predicted_ns.expected or 0.0) / 1e6 for point in points],
        t("roof, ms"): [point.predicted_ns.measured_roof / 1e6 for point in points],
        t("tokens/s"): [None if p.time_ns is None else _tokens(p) / p.time_ns * 1e9 for p in points],
        t("samples"): [point.samples for point in points],
    }
    with st.expander(t("All points"), icon=":material/table:"):
        decimals = st.column_config.NumberColumn(format="%.2f")
        numeric = [name for name, cells in columns.items() if any(isinstance(cell, float) for cell in cells)]
        st.dataframe(
            pd.DataFrame(columns),
            hide_index=True,
            column_config=dict.fromkeys(numeric, decimals),
            alt=t("Each value of the sweep: measured and predicted time, tokens a second."),
        )


def held(t: Words, record: SweepRecord) -> None:
    """What was held in what, and the model's notes: that its weights are random, say."""
    if record.model is not None:
        st.caption(
            t(
                "Weights in {weights}, KV cache in {kv}, computed in {dtype}.",
                weights=record.model.weight_format,
                kv=record.model.kv_format,
                dtype=DTYPES.get(record.model.dtype, record.model.dtype),
            )
        )
    for note in record.model.notes if record.model else []:
        st.caption(t.sentence(note))
    if record.request.axis != "prompt":
        st.caption(t("The cache was filled with made-up numbers: a step takes as long whatever they are."))


def unmeasured(t: Words) -> None:
    """Nothing on show yet."""
    if not experiments.not_measured_yet(t):
        st.caption(t("Press Measure: each value is predicted first, then timed here, one after the other."))
