"""What a run, a calibration, a timed matrix and a sweep say to the lesson's questions, worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine import lesson_measured, recorded, replay
from engine.ceilings import Ceilings
from engine.record import Run
from engine.shapes import ShapeRecord
from engine.sweeps import SweepRecord

SHIPPED = list(recorded.runs().values())


@pytest.mark.parametrize("run", SHIPPED, ids=lambda run: run.request.model)
def test_two_phases_of_a_shipped_run(run: Run) -> None:
    found = lesson_measured.two_phases(run)
    assert found is not None
    assert run.prompt is not None
    assert found.prompt_tokens == len(run.prompt.token_ids)
    assert found.passes == len(run.output.token_ids) == len(run.steps)
    times = sorted(step.time_ns for step in run.steps[1:])
    middle = (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2
    assert found.decode_ns == middle
    assert found.written_over_read == pytest.approx(middle * found.prompt_tokens / run.steps[0].time_ns)


def test_a_run_without_both_phases_says_nothing() -> None:
    run = SHIPPED[0]
    assert lesson_measured.two_phases(run.model_copy(update={"steps": run.steps[:1]})) is None
    assert lesson_measured.two_phases(run.model_copy(update={"steps": []})) is None


def test_what_is_neither_bytes_nor_arithmetic() -> None:
    phases = lesson_measured.TwoPhases(1, 2, 10.0, 44.0, 1.0, 1.0, roof_decode_ns=33.0)
    assert phases.rest_decode_ns == 11
    assert lesson_measured.TwoPhases(1, 2, 10.0, 30.0, 1.0, 1.0, roof_decode_ns=33.0).rest_decode_ns == 0


def test_a_matrix_of_the_calibration_by_hand() -> None:
    device = {"kind": "cpu", "name": "x", "threads": 1, "torch_version": "2"}
    ceilings = Ceilings.model_validate({
        "id": "x", "measured_at": "2026-01-01T00:00:00+00:00", "device": device, "launch_ns": 1.0,
        "bandwidth": [{"working_set_bytes": 1, "bytes_per_s": 20e9, "spread": 0.0}],
        "peak_flops_per_s": {"fp32": 200e9},
        "linear": [{"k": 8, "n": 4, "dtype": "fp32", "rows": rows, "time_ns": time, "spread": 0.0}
                   for rows, time in ((1, 10.0), (4, 10.0), (64, 70.0))],
    })  # fmt: skip
    assert lesson_measured.matrix_ratio(ceilings) == lesson_measured.MatrixRatio(8, 4, 64, 7.0)
    assert lesson_measured.matrix_ratio(None) is None


def point(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"time_ns": None, **values})


def test_a_timed_matrix_and_a_sweep_by_hand() -> None:
    points = [point(rows=1, time_ns=100.0), point(rows=8, time_ns=150.0), point(rows=2048)]
    shape = ShapeRecord.model_construct(k=3, n=5, points=points)
    assert lesson_measured.shape_ratio(shape) == lesson_measured.MatrixRatio(3, 5, 8, 1.5)
    assert lesson_measured.shape_ratio(ShapeRecord.model_construct(k=3, n=5, points=points[1:])) is None
    steps = [point(phase="decode", batch=1, time_ns=1e8), point(phase="decode", batch=4, time_ns=2e8),
             point(phase="decode", batch=8)]  # fmt: skip
    asked = SimpleNamespace(axis="batch", model="m")
    sweep = SweepRecord.model_construct(request=asked, points=steps)
    assert lesson_measured.batch_gain(sweep) == lesson_measured.BatchGain("m", 4, 10.0, 20.0)
    other = SweepRecord.model_construct(request=SimpleNamespace(axis="context", model="m"), points=steps)
    assert lesson_measured.batch_gain(other) is None


@pytest.mark.parametrize("run", SHIPPED, ids=lambda run: run.request.model)
def test_a_replay_shows_the_record_and_the_cache_that_grows(run: Run) -> None:
    columns = replay.columns(run)
    assert {len(column) for column in columns.values()} == {len(run.steps)}
    assert columns["rows"][0] == columns["context"][0] == len(columns["enters"][0])
    assert columns["enters"][1:] == [[text] for text in columns["leaves"][:-1]]
    grown = [after - before for before, after in zip(columns["kv_filled"], columns["kv_filled"][1:], strict=False)]
    assert set(grown) == {columns["kv"][1][1]}  # each step adds what it writes
    spec = replay.spec_of(run)
    assert spec is not None
    matrices = {matrix.name: matrix for matrix in replay.matrices(spec)}
    assert not matrices["lm_head"].every_row
    assert matrices["down_proj"].every_row
    # All matrices together are what a step reads, but for norms.
    read = sum(matrix.k * matrix.n * matrix.count for matrix in matrices.values()) * 4
    assert read == pytest.approx(columns["weights"][1][0], rel=2e-3)
