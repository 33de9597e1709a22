"""What *Shapes* shows of one matrix: its figures, the verdict in words and numbers, the drawing, every point."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from engine import shapes
from engine.matrices import Matrix
from engine.shapes import ShapeRecord
from pages._parts import components, palette, ridge_words, scene_parts, shape_charts, shape_drawing, terms
from pages._parts.words import Words


def figures(t: Words, record: ShapeRecord) -> None:
    """Time, then rate, as far as they were measured."""
    points = record.points
    turns = shape_charts.Turns(
        record.dtype, shapes.ridge_rows(record), record.weight_bytes or 0, shapes.knee_rows(points)
    )
    components.figure(shape_charts.time_figure(t, points, turns), key="shape_time")
    components.figure(shape_charts.rate_figure(t, points, turns), key="shape_rate")


def verdict(t: Words, record: ShapeRecord) -> None:
    """The record in a few sentences, then in numbers."""
    measured = shapes.curve(record.points)
    if not measured:
        return
    (fewest, one_ns), (most, all_ns) = measured[0], measured[-1]
    said = (
        t("{few}: {one}.", few=_rows(t, fewest), one=t.duration(one_ns))
        if fewest == most
        else t(
            "{few}: {one}. {most}: {all}, which is {times} times the rows in {ratio} times the time.",
            few=_rows(t, fewest),
            one=t.duration(one_ns),
            most=_rows(t, most),
            all=t.duration(all_ns),
            times=t.number(most / fewest),
            ratio=t.number(all_ns / one_ns),
        )
    )
    flat, knee = shapes.flat_until(record.points), shapes.knee_rows(record.points)
    with st.container(key="verdict"):
        st.text(t.paragraph([said, _of_flat(t, flat), *map(t.sentence, shapes.missing(record.points))]))
    needs = t("needs more rows") if fewest == 1 else t("needs a single row too")
    ridge_at = shapes.ridge_rows(record)
    scene_parts.metrics(
        [
            (t("Flat until"), _rows(t, flat), needs if flat is None else None, t(terms.FLAT_START)),
            (t("Knee, measured"), _rows(t, knee), needs if knee is None else None, t(terms.KNEE)),
            (t("Ridge, predicted"), _rows(t, ridge_at), _read_at(t, record), t(terms.RIDGE)),
            *(_at(t, record, rows, time_ns) for rows, time_ns in dict((measured[0], measured[-1])).items()),
        ],
        "shape",
    )
    ridges = [ridge_words.machine(t, record.ceilings), ridge_words.card(t)]
    st.caption(t.paragraph(ridges), help=ridge_words.why(t))


def _read_at(t: Words, record: ShapeRecord) -> str:
    """What the predicted ridge rests on: the format, and the bytes whose bandwidth it divides by."""
    if not record.weight_bytes:
        return record.dtype
    return t("{dtype}, reading {size}", dtype=record.dtype, size=t.size(record.weight_bytes))


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
        t("spread, %"): [point.spread * 100 if point.samples > 1 else None for point in points],
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
