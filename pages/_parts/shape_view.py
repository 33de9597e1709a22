"""What *Shapes* shows of one matrix: its figures, the verdict in words and numbers, the drawing, every point."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from engine import hardware, ridge, shapes
from engine.matrices import Matrix
from engine.shapes import ShapePoint, ShapeRecord
from pages._parts import components, palette, scene_parts, shape_charts, shape_drawing, terms
from pages._parts.machine_facts import LESSON_CARD
from pages._parts.words import Words


def figures(t: Words, points: Sequence[ShapePoint], ridge_at: float | None, knee: float | None) -> None:
    """Time, then rate."""
    components.figure(shape_charts.time_figure(t, points, ridge_at, knee), key="shape_time")
    components.figure(shape_charts.rate_figure(t, points, ridge_at, knee), key="shape_rate")


def verdict(t: Words, record: ShapeRecord) -> None:
    """The record in a few sentences, then in numbers."""
    measured = shapes.curve(record.points)
    if not measured:
        return
    (fewest, one_ns), (most, all_ns) = measured[0], measured[-1]
    said = t(
        "{few}: {one}. {most}: {all}, which is {times} times the rows in {ratio} times the time.",
        few=_rows(t, fewest),
        one=t.duration(one_ns),
        most=_rows(t, most),
        all=t.duration(all_ns),
        times=t.number(most / fewest),
        ratio=t.number(all_ns / one_ns),
    )
    flat = shapes.flat_until(record.points)
    with st.container(key="verdict"):
        st.text(t.paragraph([said, _of_flat(t, flat)]))
    card = ridge.of_device(hardware.load(LESSON_CARD), "bf16") or 0.0
    knee, ridge_at = shapes.knee_rows(record.points), shapes.ridge_rows(record)
    there = t("H100: {rows} rows", rows=t.number(card, 0))
    scene_parts.metrics(
        [
            (t("Flat until"), _rows(t, flat), None, t(terms.FLAT_START)),
            (t("Knee, measured"), _rows(t, knee), None, t(terms.KNEE)),
            (t("Ridge, predicted"), _rows(t, ridge_at), there, t(terms.RIDGE)),
            _at(t, record, fewest, one_ns),
            _at(t, record, most, all_ns),
        ],
        "shape",
    )


def _of_flat(t: Words, flat: float | None) -> str:
    if flat is None:
        return ""
    if flat < 2:
        return t(
            "There is no flat start here: the kernel for two rows takes more than a quarter longer than the one for a "
            "single row, although it reads the same bytes."
        )
    return t("Up to {flat} rows the others come nearly free.", flat=t.number(flat, 0))


def _rows(t: Words, rows: float | None) -> str:
    if rows is None:
        return "–"
    if rows == 1:
        return t("One row")
    return t("{rows} rows", rows=t.number(rows, 0 if rows >= 10 or float(rows).is_integer() else 1))


def _at(t: Words, record: ShapeRecord, rows: int, time_ns: float) -> tuple[str, str, str | None, str]:
    [point] = [each for each in record.points if each.rows == rows]
    beside = t("predicted {time}", time=t.duration(point.predicted_ns.measured_roof))
    return _rows(t, rows), t.duration(time_ns), beside, t(terms.MEASURED_ROWS)


def drawing(t: Words, matrix: Matrix, weights: str, rows: int, record: ShapeRecord | None) -> None:
    """GEMM beside GEMV, to scale, with what each moves, does and took."""
    times = dict(shapes.curve(record.points)) if record else {}
    named = (
        (rows, t("Prefill: {rows} rows at once (matrix × matrix, GEMM)", rows=t.number(rows)), palette.PREFILL),
        (1, t("Decode: one row (vector × matrix, GEMV)"), palette.DECODE),
    )
    for place, place_name, (each, name, colour) in zip(st.columns(2), ("many", "one"), named, strict=True):
        with place:
            st.markdown(f"**{name}**")
            figure = shape_drawing.product(t, rows=each, k=matrix.k, n=matrix.n, colour=colour)
            components.figure(figure, key=f"drawn_{place_name}")
            moved, flops = matrix.moved_bytes(each, weights), matrix.flops(each)
            told = t(
                "{size} moved, {flops}: {intensity} FLOP/byte",
                size=t.size(moved),
                flops=t.flops(flops),
                intensity=t.number(flops / moved),
            )
            st.markdown(told + (f" · **{t.duration(times[each])}**" if each in times else ""))
    st.caption(
        t("Sides are to scale; a side thinner than a pixel is drawn as a line. Grey: the weights, the same in both.")
    )


def table(t: Words, record: ShapeRecord) -> None:
    """Every point in numbers."""
    points = record.points
    columns = {
        t("rows"): [point.rows for point in points],
        t("measured, ms"): [None if point.time_ns is None else point.time_ns / 1e6 for point in points],
        t("spread, %"): [point.spread * 100 for point in points],
        t("roof, ms"): [point.predicted_ns.measured_roof / 1e6 for point in points],
        "GFLOP/s": [None if point.flops_per_s is None else point.flops_per_s / 1e9 for point in points],
        t("samples"): [point.samples for point in points],
    }
    with st.expander(t("All points"), icon=":material/table:"):
        decimals = st.column_config.NumberColumn(format="%.3f")
        numeric = [name for name in columns if name not in (t("rows"), t("samples"))]
        st.dataframe(
            pd.DataFrame(columns),
            hide_index=True,
            column_config=dict.fromkeys(numeric, decimals),
            alt=t("Each number of rows: measured and predicted time, rate."),
        )
