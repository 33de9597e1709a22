"""Experiments through the broker and a real engine: predicted first, kept whatever ends them, found again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch
from line_worker import Worker
from service import MODEL, ask, ask_long, made_up_ceilings, new_store, wait_until

from engine import catalogue, experiment_record, kernels, matrices, sweeps
from engine.broker import Broker
from engine.cache import KVCache
from engine.errors import LabError
from engine.experiment import general
from engine.experiment_record import measured
from engine.imported import imported_at
from engine.lookups import LookupRecord, LookupRequest
from engine.protocol import Cancel, ExperimentJob
from engine.shapes import ShapeRecord, ShapeRequest
from engine.sweep_job import _fill
from engine.sweeps import SweepRecord, SweepRequest

END_S = 120.0
needs_kernels = pytest.mark.skipif(not kernels.usable(), reason="packed weights need the compiled kernels (numba)")
ROWS = [1, 4, 16, 64]


def shape(**changes: object) -> ShapeRequest:
    """A small matrix with a few rows."""
    return ShapeRequest.model_validate({"model": MODEL, "weights": "fp32", "rows": ROWS, **changes})


def long_shape() -> ShapeRequest:
    """The lesson's matrix with so many rows that it takes a while."""
    return ShapeRequest(weights="fp32", rows=[1, 512, 768, 1024, 1280, 1536, 1792, 2048, 3072, 4096])


def sweep(**changes: object) -> SweepRequest:
    """A short sweep of the smallest model."""
    return SweepRequest.model_validate({"model": MODEL, "values": [1, 2, 4], "context": 16, **changes})


def test_every_prediction_is_sent_before_anything_is_timed(worker: Worker) -> None:
    ceilings = made_up_ceilings(worker.device)
    job = ExperimentJob(id="shapeshape01", created_at="2026-01-02T03:04:05+00:00", request=shape(), ceilings=ceilings)
    worker.send(job.to_line())
    events = worker.until("finished")
    said = [event.record for event in events if event.event == "recorded"]
    final = events[-1].record
    assert isinstance(final, ShapeRecord)
    assert [point.time_ns for point in said[0].points] == [None] * len(ROWS)
    matrix = matrices.named(catalogue.load(MODEL), shape().matrix)
    foretold = matrices.predict(matrix, "fp32", ROWS, general(ceilings))
    for each in (said[0], final):
        assert [point.predicted_ns for point in each.points] == [point.predicted_ns for point in foretold]
    assert [measured(each) for each in said] == sorted(measured(each) for each in said)
    assert measured(final) == len(ROWS)
    assert final.state == "done"
    assert final.probe is not None


def test_a_cancel_in_the_middle_keeps_what_was_measured(worker: Worker) -> None:
    ceilings = made_up_ceilings(worker.device)
    job = ExperimentJob(
        id="cancelshape1", created_at="2026-01-02T03:04:05+00:00", request=long_shape(), ceilings=ceilings
    )
    worker.send(job.to_line())
    while measured(worker.until("recorded")[-1].record) == 0:
        pass
    worker.send(Cancel(id="cancelshape1").to_line())
    finished = worker.until("finished")[-1]
    assert finished.cancelled
    assert finished.record.state == "cancelled"
    assert 0 < measured(finished.record) < len(long_shape().rows) == experiment_record.asked(finished.record)


@pytest.mark.parametrize("axis", ["batch", "prompt", "context"])
def test_a_sweep_is_predicted_measured_and_kept(axis: str, broker: Broker) -> None:
    made = broker.experiments
    values = [2, 4, 8] if axis == "context" else [1, 2, 4]
    record = made.wait_for(made.submit(sweep(axis=axis, values=values), "me"), END_S)
    assert isinstance(record, SweepRecord)
    assert record.state == "done", record.error
    assert [point.value for point in record.points] == values
    assert measured(record) == 3
    first, *_, last = record.points
    if axis == "batch":
        assert (last.batch, last.context, last.phase) == (4, 16, "decode")
        assert last.bytes.kv_read == 4 * first.bytes.kv_read
        assert last.bytes.weights == pytest.approx(first.bytes.weights, rel=1e-3)  # embedding rows are a token's own
    elif axis == "prompt":
        assert (last.tokens, last.context, last.phase) == (4, 4, "prefill")
    else:
        assert (last.batch, last.context) == (1, 8)
        assert last.bytes.kv_read == 7 * last.bytes.kv_write
    assert record.model is not None
    assert record.model.weights == "random"
    assert broker._store.get_experiment(record.id) == record


def test_a_sweeps_points_are_those_the_pages_draw(broker: Broker) -> None:
    made = broker.experiments
    record = made.wait_for(made.submit(sweep(), "me"), END_S)
    assert isinstance(record, SweepRecord)
    points = sweeps.measured_points(record)
    assert [point.batch for point in points] == [1, 2, 4]
    for point, kept in zip(points, record.points, strict=True):
        assert kept.time_ns is not None
        assert point.tokens_per_s == pytest.approx(kept.batch / kept.time_ns * 1e9)
        assert point.intensity == pytest.approx(kept.flops / kept.bytes.total)


@needs_kernels
def test_a_sweep_in_int8_reads_a_quarter_and_is_predicted_so(broker: Broker) -> None:
    made = broker.experiments
    plain, packed = (
        made.wait_for(made.submit(sweep(values=[1, 2], weights=weights), "me"), END_S) for weights in (None, "int8")
    )
    assert isinstance(plain, SweepRecord)
    assert isinstance(packed, SweepRecord)
    assert packed.state == "done", packed.error
    assert packed.model is not None
    assert (packed.model.weight_format, packed.model.kv_format, packed.model.dtype) == ("int8", "fp32", "float32")
    assert measured(packed) == 2
    for whole, quarter in zip(plain.points, packed.points, strict=True):
        assert quarter.bytes.weights / whole.bytes.weights == pytest.approx(1 / 4, abs=0.01)
        assert quarter.bytes.kv_read == whole.bytes.kv_read
        assert quarter.predicted_ns.measured_roof < whole.predicted_ns.measured_roof
    # Both may have been made within one second, the finest that lists are sorted by.
    assert {row.id: row.format for row in made.newest("sweep", 20)}[packed.id] == "int8"


@needs_kernels
def test_a_sweep_keeps_its_cache_in_the_format_asked_for_and_is_predicted_so(broker: Broker) -> None:
    """An int8 cache: a byte a number and two for each of their groups of 64, where fp32 has four a number."""
    made = broker.experiments
    plain, packed = (
        made.wait_for(made.submit(sweep(axis="context", values=[16, 32], kv=kv), "me"), END_S) for kv in (None, "int8")
    )
    assert isinstance(plain, SweepRecord)
    assert isinstance(packed, SweepRecord)
    assert packed.state == "done", packed.error
    assert packed.model is not None
    assert (packed.model.weight_format, packed.model.kv_format) == ("fp32", "int8")
    assert measured(packed) == 2
    for whole, narrow in zip(plain.points, packed.points, strict=True):
        assert narrow.bytes.weights == whole.bytes.weights
        assert 1 / 4 < narrow.bytes.kv_read / whole.bytes.kv_read < 0.3
        assert 1 / 4 < narrow.kv_held_bytes / whole.kv_held_bytes < 0.3


def test_experiments_are_listed_the_newest_first_by_kind_and_model(broker: Broker) -> None:
    made = broker.experiments
    shape_id = made.submit(shape(), "me")
    made.wait_for(shape_id, END_S)
    rows = made.newest("shape", 10)
    assert rows[0].id == shape_id
    assert rows[0].what == "mlp.up_proj"
    assert rows[0].points == len(ROWS)
    assert {row.kind for row in rows} == {"shape"}
    assert made.newest("sweep", 10, "another") == []


def test_one_thing_an_owner_at_a_time(broker: Broker) -> None:
    run = broker.submit(ask_long(), "busy")
    with pytest.raises(LabError, match="a run that has not ended"):
        broker.experiments.submit(shape(), "busy")
    broker.cancel(run, "busy")
    broker.wait_for(run, END_S)
    waiting = broker.experiments.submit(long_shape(), "busy")
    with pytest.raises(LabError, match="a measurement that has not ended"):
        broker.submit(ask(), "busy")
    with pytest.raises(LabError, match="Only the one who started"):
        broker.cancel(waiting, "somebody else")
    broker.cancel(waiting, "busy")
    assert broker.experiments.wait_for(waiting, END_S).state == "cancelled"
    assert broker.experiments.active("busy") is None


def test_cancelled_while_it_waits_it_is_kept_without_a_point(broker: Broker) -> None:
    running = broker.experiments.submit(long_shape(), "first")
    waiting = broker.experiments.submit(shape(), "second")
    broker.cancel(waiting, "second")
    record = broker.experiments.wait_for(waiting, END_S)
    assert (record.state, measured(record), experiment_record.asked(record)) == ("cancelled", 0, len(ROWS))
    broker.cancel(running, "first")
    broker.experiments.wait_for(running, END_S)


def test_killed_in_the_middle_it_keeps_its_points_and_says_why(broker: Broker) -> None:
    made = broker.experiments
    experiment = made.submit(long_shape(), "me")

    def begun() -> bool:
        record = made.view(experiment).record
        return record is not None and measured(record) > 0

    wait_until(begun, END_S, "the first point")
    assert broker.worker_pid is not None
    os.kill(broker.worker_pid, signal.SIGKILL)
    record = made.wait_for(experiment, END_S)
    assert record.state == "failed"
    assert "killed (signal 9)" in str(record.error)
    assert 0 < measured(record) < len(long_shape().rows)
    assert broker._store.get_experiment(experiment) == record
    again = made.wait_for(made.submit(shape(), "me"), END_S)
    assert again.state == "done", "the next one is not affected"


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (shape(model="nothing"), "nothing"),
        (shape(matrix="w"), "There is no matrix w"),
        (shape(weights="q2_k"), "not a format this engine multiplies"),
        (shape(rows=[]), "No number of rows"),
        (sweep(model="nothing"), "There is no model nothing"),
        (sweep(values=[0]), "The batch is 0"),
        (sweep(values=[300]), "from 1 to 256"),
        (sweep(axis="context", values=[2**30]), "The context is 1073741824"),
        (sweep(axis="context", values=[1]), "from 2 to"),
        (sweep(dtype="float8"), "float8 is not a type"),
        (sweep(weights="int3"), "does not hold weights in int3"),
        (sweep(weights="int8", dtype="bfloat16"), "does not hold weights in int8"),
        (sweep(values=[]), "No value"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    request_: ShapeRequest | SweepRequest, sentence: str, broker: Broker
) -> None:
    with pytest.raises(LabError, match=sentence):
        broker.experiments.submit(request_, "me")
    assert broker.experiments.active("me") is None


def test_values_beyond_the_models_context_are_left_out_and_said(broker: Broker) -> None:
    limit = catalogue.load(MODEL).max_position
    record = broker.experiments.wait_for(
        broker.experiments.submit(sweep(axis="context", values=[4, limit + 1]), "me"), END_S
    )
    assert [point.value for point in record.points] == [4]  # type: ignore[union-attr]
    assert "1 values were left out" in str(record.notes[0])


def test_an_imported_record_is_found_under_its_own_id_and_never_overwrites(broker: Broker) -> None:
    made = broker.experiments
    record = made.wait_for(made.submit(shape(), "me"), END_S)
    copy = record.to_json().replace(record.id, "importimport")
    assert experiment_record.holds_experiment(copy.encode())
    made.keep(experiment_record.read(copy.encode()))
    found = made.record("importimport")
    assert imported_at(found) is not None
    with pytest.raises(LabError, match="already kept"):
        made.keep(experiment_record.read(copy.replace('"spread":0', '"spread":9').encode()))
    for unknown in ("nothingnothi", "../../etc"):
        with pytest.raises(LabError, match="There is no experiment"):
            made.view(unknown)


def test_a_cache_is_filled_everywhere() -> None:
    cache = KVCache(
        layers=2, batch=3, kv_heads=1, positions=8, head_dim=4, dtype=torch.float32, device=torch.device("cpu")
    )
    _fill(cache)
    cache.length = 7
    [views, *_] = cache.extend(1)
    assert (views.keys != 0).all()


def test_the_command_line_prints_one_table(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                           monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    from engine import cli

    monkeypatch.setenv("ROOFLINE_LAB_STORE", f"sqlite:///{tmp_path}/lab.db")
    monkeypatch.setenv("ROOFLINE_LAB_THREADS", "1")
    store = new_store(tmp_path)
    device = broker.machine().device
    assert device is not None
    store.put_ceilings(made_up_ceilings(device))
    asked = ["shapes", "--model", MODEL, "--weights", "fp32", "--rows", "1,8", "--format", "csv"]
    assert cli.main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[2] for line in lines] == ["rows", "1", "8"]
    assert cli.main(["shapes", "--rows", "1,x"]) == 1
    assert "--rows is 1,x" in capsys.readouterr().err


@pytest.mark.parametrize("weights", [None, pytest.param("int8", marks=needs_kernels)])
def test_drafts_are_foretold_checked_and_the_tokens_are_greedys(weights: str | None, worker: Worker) -> None:
    asked = LookupRequest(
        model=MODEL, prompt="one two one two one two one", max_new_tokens=24, drafts=4, weights=weights
    )
    job = ExperimentJob(
        id="lookuppacked" if weights else "lookuplookup",
        created_at="2026-01-02T03:04:05+00:00",
        request=asked,
        ceilings=made_up_ceilings(worker.device, "int8"),
    )
    worker.send(job.to_line())
    events = worker.until("finished")
    said = [event.record for event in events if event.event == "recorded"]
    final = events[-1].record
    assert isinstance(final, LookupRecord), events[-1].error
    assert final.state == "done"
    assert measured(said[0]) == 0
    assert [point.predicted_ns for point in said[0].points] == [point.predicted_ns for point in final.points]
    assert final.same_as_greedy is True
    assert final.model is not None
    assert final.model.weight_format == (weights or "fp32")
    assert measured(final) == len(final.points)
    assert 1 + sum(point.check.gained for point in final.points) == len(final.token_ids) == 24
    assert len(final.greedy_ns) == 2 * 23
    assert final.gain is not None
    table = experiment_record.to_csv(final).splitlines()
    assert table[0].startswith("experiment_id,kind,drafted,kept,context,again,time_ns")
    assert len(table) == 1 + len(final.points)
