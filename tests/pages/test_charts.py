"""The figures of *This machine*: what is drawn are the ceilings, and marks stand where they belong."""

from __future__ import annotations

import math

import pytest

from engine.ceilings import BandwidthPoint, Ceilings, DeviceFacts, LinearPoint
from pages._parts import charts, palette
from pages._parts.words import Words

EN = Words("en")
BANDWIDTH = {64 * 2**10: 90e9, 2**20: 60e9, 64 * 2**20: 20e9, 2**30: 18e9}
LINEAR = [
    LinearPoint(k=576, n=n, dtype="fp32", rows=rows, time_ns=576 * n * max(4 / 18, rows * 2 / 190), spread=0.02,
                working_set_bytes=2**30)
    for n in (960, 3072) for rows in (1, 8, 64, 512)
]  # fmt: skip
CEILINGS = Ceilings(
    id="test",
    measured_at="2026-11-29T22:54:35+00:00",
    device=DeviceFacts(kind="cpu", name="a processor", threads=2, torch_version="2.13", cache_bytes={"l2": 2 * 2**20}),
    bandwidth=[
        BandwidthPoint(
            working_set_bytes=size, bytes_per_s=rate, spread=0.05, by_kernel={"sum": rate, "matvec": rate / 2}
        )
        for size, rate in BANDWIDTH.items()
    ],
    peak_flops_per_s={"fp32": 190e9},
    launch_ns=2500,
    linear=LINEAR,
)


def test_the_bandwidth_curve_is_what_was_measured_with_its_spread() -> None:
    figure = charts.bandwidth_figure(EN, CEILINGS)
    [curve] = figure.data
    assert list(curve.x) == list(BANDWIDTH)
    assert [rate * 1e9 for rate in curve.y] == pytest.approx(list(BANDWIDTH.values()))
    assert list(curve.error_y.array) == pytest.approx([rate / 1e9 * 0.05 for rate in BANDWIDTH.values()])
    assert "64 KiB: 90 GB/s" in curve.customdata[0]
    assert curve.customdata[0].index("sum") < curve.customdata[0].index("matvec")  # the fastest kernel first


def test_a_cache_is_marked_where_it_ends() -> None:
    figure = charts.bandwidth_figure(EN, CEILINGS)
    [line], [name] = figure.layout.shapes, figure.layout.annotations
    assert line.x0 == line.x1 == 2 * 2**20
    assert name.text == "L2 2 MiB"
    assert name.x == pytest.approx(math.log10(2 * 2**20))  # the axis is logarithmic


def test_matrices_lie_under_a_roof_that_turns_at_the_ridge() -> None:
    figure = charts.rows_figure(EN, LINEAR, CEILINGS)
    *matrices, roof = figure.data
    assert [curve.name for curve in matrices] == ["576 × 3072", "576 × 960"]
    knee = 190 / 18 * 4 / 2  # peak over bandwidth, four bytes a weight, two FLOPs
    assert figure.layout.annotations[0].x == pytest.approx(math.log10(knee))
    assert roof.line.color == palette.FLOOR
    heights = dict(zip(roof.x, roof.y, strict=True))
    assert heights[1.0] == pytest.approx(18e9 * 2 / 4 / 1e9)
    assert max(roof.y) == pytest.approx(190)
    for curve in matrices:
        for rows, rate in zip(curve.x, curve.y, strict=True):
            assert rate <= min(190, rows * 2 / 4 * 18) * 1.0001


def test_a_dtype_without_a_measured_peak_has_no_roof() -> None:
    figure = charts.rows_figure(EN, LINEAR, CEILINGS.model_copy(update={"peak_flops_per_s": {}}))
    assert len(figure.data) == 2
    assert not figure.layout.shapes


def test_a_spread_as_large_as_the_rate_is_a_hollow_point_and_no_bar_over_the_whole_chart() -> None:
    wild = [point.model_copy(update={"spread": 24.0} if point.working_set_bytes == 2**20 else {})
            for point in CEILINGS.bandwidth]  # fmt: skip
    [curve] = charts.bandwidth_figure(EN, CEILINGS.model_copy(update={"bandwidth": wild})).data
    assert [height > 0 for height in curve.error_y.array] == [True, False, True, True]
    assert list(curve.marker.symbol) == ["circle", "circle-open", "circle", "circle"]
    assert ["too wide to draw" in hover for hover in curve.customdata] == [False, True, False, False]


def test_matrices_have_hues_of_their_own_and_one_that_ends_early_says_why() -> None:
    shapes = [(576, 3072), (576, 960), (576, 576), (1536, 576), (576, 49152)]
    points = [
        LINEAR[0].model_copy(update={"k": k, "n": n, "rows": rows}) for k, n in shapes for rows in (1, 4, 64)
        if n < 49152 or rows < 64
    ]  # fmt: skip
    *matrices, _roof = charts.rows_figure(EN, points, CEILINGS).data
    assert len({curve.line.color for curve in matrices}) == len(shapes)
    assert [curve.name for curve in matrices if "timed up to 4 rows" in curve.hovertemplate] == ["576 × 49152"]
